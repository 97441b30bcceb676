"""`python -m holter`, the same as `holter`."""

import contextlib
import os
import sys

# Python has put the folder that the user stands in first on the path; what lies there is not for us to import.
with contextlib.suppress(OSError):  # the folder may be gone
    if not getattr(sys.flags, "safe_path", False) and sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]

from holter.commands import main

main()
