"""Who counts the batches of a loader: a loop that takes a fixed number of them must not be handed chunks.

A `for` over the loader ends when the loader does. One over a `range`, or a `while`, that asks for the next batch by
itself would end after some of its updates; so would a Trainer, which counts by the loader's length.
"""

import ast
import linecache
import sys

from ..core.user_frame import is_user_file

_TRAINERS = {
    "lightning": "Lightning counts the batches itself: use accumulate_grad_batches",
    "pytorch_lightning": "Lightning counts the batches itself: use accumulate_grad_batches",
    "transformers": "the Trainer counts the batches itself: use gradient_accumulation_steps",
    "accelerate": "Accelerate draws a batch ahead: use gradient_accumulation_steps",
}
_GENERATOR = 0x20
_HAND_ON = {"torch", "tqdm", "rich", __name__.partition(".")[0]}  # those that draw a batch when they are asked for one
_REPORTS = {
    "print", "format", "write", "log", "info", "debug", "warning", "add_scalar", "add_scalars", "log_metric",
    "log_metrics", "append", "save", "set_postfix", "set_postfix_str", "set_description", "update", "join", "str",
}  # fmt: skip
_NOT_FINITE = {"isnan", "isinf", "isfinite"}


def who_counts(frame, only_faster=False):
    """Why the loop that draws from a loader can't be handed chunks, or an empty string."""
    drawn_by = ""  # a function of the script's own between the loader and its loop
    while frame is not None:
        root, name = str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_name
        if root in _TRAINERS:
            return _TRAINERS[root]
        if not is_user_file(frame.f_code.co_filename):
            drawn_by = drawn_by or ("" if root in _HAND_ON else name)
            frame = frame.f_back
            continue
        loop, is_generator = _innermost_loop(frame), frame.f_code.co_flags & _GENERATOR
        if isinstance(loop, ast.While) or (loop is not None and _is_counted(loop.iter)):
            return "the loop asks for a number of batches (line %d), and would end early" % loop.lineno
        why = _what_hangs_on_it(loop) if loop is not None and only_faster else ""
        if why:
            return why
        if is_generator and not only_faster and (name == "<genexpr>" or _passes_each_on(loop)):
            frame = frame.f_back
            continue
        if is_generator or loop is None:
            drawn_by = drawn_by or name
        # One that is held back while the next is drawn would be learnt from in pieces, with an update for each.
        if drawn_by and (is_generator or loop is not None or only_faster):
            return "the batches pass through `%s`, which may hold one back" % drawn_by
        if loop is not None:
            return "" if _is_main_thread() else "the batches are drawn in another thread, which may hold one back"
        frame = frame.f_back
    return ""


def _is_main_thread():
    threading = sys.modules.get("threading")
    return threading is None or threading.current_thread() is threading.main_thread()


def _passes_each_on(loop):
    """Tell whether a generator yields what it has just drawn: each `yield` reads the loop's own variable."""
    if not isinstance(loop, ast.For):
        return False
    fresh, yields = _names(loop.target), 0
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                yields += 1
                if not _names(node) & fresh:
                    return False
        if isinstance(statement, ast.Assign) and _names(statement.value) & fresh:
            fresh |= {name for target in statement.targets for name in _names(target)}
    return yields > 0


def _names(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _innermost_loop(frame):
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    if not source or len(source) > 2_000_000:
        return None
    found, first, line = None, frame.f_code.co_firstlineno, frame.f_lineno
    for node in ast.walk(ast.parse(source)):  # breadth first: inner loops come last
        if isinstance(node, (ast.For, ast.While)) and first <= node.lineno <= line <= (node.end_lineno or 0):
            found = node
    return found


def _is_counted(call):
    """True for `range(...)`, also beside the loader in `zip` and inside `tqdm`; and for `islice`."""
    if not isinstance(call, ast.Call):
        return False
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name in ("range", "trange", "islice"):
        return True
    return any(_is_counted(one) for one in call.args)


def _what_hangs_on_it(loop):
    """What would come out otherwise if there were more iterations."""
    counters = _counters(loop)
    for statement in loop.body:
        for node, above in _with_parents(statement, ()):
            if _leaves(node, above):
                return "the loop may be left before its end (line %d)" % node.lineno
            name = _name(node)
            if name in counters and isinstance(node.ctx, ast.Load) and not _is_harmless(above):
                return "the loop goes by its count of iterations (`%s`, line %d)" % (name, node.lineno)
    return ""


def _with_parents(node, above):
    yield node, above
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _with_parents(child, (*above, node))


def _counters(loop):
    """What `enumerate` counts in, and what is raised by a number each time."""
    found = set()
    if isinstance(loop.iter, ast.Call) and isinstance(loop.target, (ast.Tuple, ast.List)) and _enumerates(loop.iter):
        found.add(_name(loop.target.elts[0]))
    for node in loop.body:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant):
            found.add(_name(node.target))
    return found - {""}


def _enumerates(call):
    return _name(call.func) == "enumerate" or any(isinstance(one, ast.Call) and _enumerates(one) for one in call.args)


def _name(node):
    """`step` or `self.step`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return "%s.%s" % (node.value.id, node.attr)
    return ""


def _is_harmless(above):
    """A count that is reported, taken modulo something, or put beside the length, which knows of the chunks."""
    for node in reversed(above):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in _REPORTS:
            return True
        if isinstance(node, (ast.Compare, ast.BinOp)) and any(
            isinstance(one, ast.Call) and _name(one.func) == "len" for one in ast.walk(node)
        ):
            return True
    return False


def _leaves(node, above):
    """A `return`, or a `break` that is not an inner loop's; `if torch.isnan(loss): break` hangs on no count."""
    if not isinstance(node, (ast.Break, ast.Return)):
        return False
    if isinstance(node, ast.Break) and any(isinstance(one, (ast.For, ast.While)) for one in above):
        return False
    tests = [one.test for one in above if isinstance(one, ast.If)][-1:]
    names = {getattr(one, "attr", getattr(one, "id", "")) for test in tests for one in ast.walk(test)}
    return not names & _NOT_FINITE
