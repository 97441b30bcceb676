"""The statements of the user's that made a loss from a batch: those of the loop's body that it depends on.

Names that hold data are taken as they stand; what was computed through the model is computed once more.
"""

import ast

from ._pure_code import tree_of

_BLOCKS = ("body", "orelse", "finalbody")


def of_frame(frame, names, needs_again, within=False):
    """The statements before the frame's current line that `names` come from, and the names they take as they are."""
    block = _block_around(frame)
    if block is None:
        return None
    if within:  # what stands in a `with` is taken out of it: a tape is not needed to compute
        block = [inner for statement in block for inner in (getattr(statement, "body", None) if
                 isinstance(statement, ast.With) else None) or [statement]]  # fmt: skip
    before = [statement for statement in block if (statement.end_lineno or statement.lineno) < frame.f_lineno]
    return _sliced(before, set(names), needs_again)


def backward_name(frame):
    """The name of the loss on the frame's line: `loss.backward()`, `scaler.scale(loss).backward()`."""
    tree = tree_of(frame.f_code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr == "backward":
                found = {*_names(function.value), *(name for arg in node.args for name in _names(arg))}
                return found
    return set()


def _sliced(before, wanted, needs_again):
    kept = []
    for statement in reversed(before):
        made = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _stores(node)}
        if not made & wanted or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        if not any(needs_again(name) for name in made & wanted):
            continue
        kept.insert(0, statement)
        wanted |= {name for name in _names(statement) if needs_again(name) or name not in made}
    return kept


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


def _stores(node):
    return isinstance(node.ctx, ast.Store)


def _names(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def names_near(frame):
    """The names that the statements around the frame's present line use."""
    return names_in(_block_around(frame) or ())


def names_in(statements):
    """All names that statements read or write."""
    return {node.id for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name)}


def compiled(statements, filename):
    """Statements as code, on the lines on which they stand."""
    return compile(ast.Module(body=list(statements), type_ignores=[]), filename, "exec")
