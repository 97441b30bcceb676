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


def parses(text: str) -> bool:
    """Tell whether a text has a tree, without making one: half the time. Where this says no, ask `parse`."""
    import symtable  # only a check of many files asks

    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            symtable.symtable(text, "", "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False  # also of what parses and makes no sense, such as a global that is a parameter
    return True
