"""The names that the statements around a frame's present line use: of all that a script holds, those of its step."""

import ast

from .source_calls import tree_of

_BLOCKS = ("body", "orelse", "finalbody")


def names_near(frame):
    """All names that the block around the frame's present line reads or writes."""
    block = _block_around(frame) or ()
    return {node.id for statement in block for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _block_around(frame):
    tree = tree_of(frame.f_code.co_filename)
    if tree is None:
        return None
    line, best = frame.f_lineno, None
    for node in ast.walk(tree):
        if not isinstance(node, (ast.For, ast.While, ast.FunctionDef, ast.Module)):
            continue
        for field in _BLOCKS:
            block = getattr(node, field, None) or ()
            if any(s.lineno <= line <= (s.end_lineno or 0) for s in block):
                best = block  # breadth first: the innermost comes last
    return best
