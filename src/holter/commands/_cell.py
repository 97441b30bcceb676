"""The recorder of a notebook's cell: `holter run`, for a command that finds the modules beside the notebook."""

from __future__ import annotations

import os
import sys

from holter import commands


def main() -> None:
    """The notebook's folder, then the words of the command line."""
    folder, *words = sys.argv[1:]
    # For the cell alone, which is started with this environment: this process itself imports nothing from there.
    os.environ["PYTHONPATH"] = os.pathsep.join(one for one in (folder, os.environ.get("PYTHONPATH", "")) if one)
    commands.main(words)
