"""`python -m holter`, the same as `holter`."""

from holter.commands import main

main()
