"""Users' code as a syntax tree, from any thread."""

from __future__ import annotations

import ast
import threading
import warnings

# Python 3.11 counts the depth of all threads' parsing in one place, and fails where two meet.
_ONE_AT_A_TIME = threading.Lock()


def parse(text: str) -> ast.Module:
    """Give the tree of a text; raises as `ast.parse` does, and warns of nothing: users see their own escapes."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
