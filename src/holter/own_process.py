"""How a process of ours is started: it never imports from the folder that the user stands in.

`python -m` puts that folder first on its path, and a `json.py` in a project that was downloaded is executed. `-P` would
do from Python 3.11 on; `-c`, with the path put right before anything is imported, does everywhere. PYTHONPATH is the
user's own word and stays, but for what leads to that very folder: an empty entry in it, as `$PYTHONPATH:/x` leaves one,
means just that and is seldom meant.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parent.parent)
_START = """
import os, sys
root, module = sys.argv[1:3]
del sys.argv[1:3]
try:
    here = os.path.realpath(os.getcwd())
except OSError:
    here = ""
ours = (root, os.path.dirname(os.__file__))
sys.path[:] = [one for one in sys.path if one and (one in ours or os.path.realpath(one) != here)]
if root not in sys.path:
    sys.path.append(root)
import importlib
importlib.import_module(module).main()
"""


def own_process(module: str, *arguments: str) -> list[str]:
    """The words that start `main()` of a module of ours, under the interpreter that we run on."""
    return [sys.executable, "-c", _START, _ROOT, module, *arguments]
