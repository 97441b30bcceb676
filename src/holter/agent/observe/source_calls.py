"""The user's own source: lines on which an operation may stand, and the names that a frame's statements use."""

import ast
import linecache

from ..core.user_frame import place_of

_SIGNS = {"div": ast.Div, "pow": ast.Pow, "mul": ast.Mult, "matmul": ast.MatMult, "mm": ast.MatMult}
_ALSO = {
    "softmax": ("softmax", "Softmax"),
    "log_softmax": ("log_softmax", "LogSoftmax", "cross_entropy", "CrossEntropyLoss"),
    "div": ("div", "true_divide", "divide"),
    "pow": ("pow", "square"),
    "mse_loss": ("mse_loss", "MSELoss"),
    "log": ("log", "log2", "log10", "log1p"),
    "exp": ("exp", "expm1"),
    "reciprocal": ("reciprocal", "div"),
    "std": ("std", "var", "var_mean", "std_mean"),
}
# `self.log(...)` of a Trainer and `logger.log(...)` only share the name; NumPy and math work on what is not trained.
_ASIDE = frozenset(("self", "logger", "logging", "np", "numpy", "math", "writer", "wandb", "mlflow", "trainer"))
_LINES = 12
_BLOCKS = ("body", "orelse", "finalbody")


def tree_of(filename):
    """The parsed file, or None."""
    lines = linecache.getlines(filename)
    if not lines or sum(map(len, lines)) > 1_000_000:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None


def of(name, files):
    """The lines of some files where an operation is written, at most a dozen."""
    names = _ALSO.get(name, (name,))
    sign = _SIGNS.get(name)
    found = {}
    for file in files:
        tree = tree_of(file)
        for function, node in _within(tree) if tree is not None else ():
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                owner = getattr(getattr(node.func, "value", None), "id", "")
                wanted = called in names and owner not in _ASIDE
            else:
                wanted = sign is not None and isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, sign)
                wanted = wanted and not isinstance(getattr(node, "right", None), ast.Constant)
            if wanted:
                found.setdefault((file, node.lineno), function)
            if len(found) >= _LINES:
                break
    # What a step computes is not written where an object is made, unless it is written nowhere else.
    in_steps = [place for place, function in found.items() if function != "__init__"]
    return [place_of(file, line, found[file, line]) for file, line in sorted(in_steps or found)]


def _within(tree):
    """Every node with the name of the function around it."""
    waiting = [("<module>", tree)]
    while waiting:
        function, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            named = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
            yield named, child
            waiting.append((named, child))


def names_near(frame):
    """All names that the block around the frame's present line uses: of all that a script holds, those of its step."""
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
