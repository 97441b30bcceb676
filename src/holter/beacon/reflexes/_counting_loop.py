"""Who counts the batches of a loader: a loop that takes a fixed number of them must not be handed parts.

A `for` over the loader ends when the loader does. One over a `range`, or a `while`, that asks for the next batch by
itself would end after a part of its updates; so would a Trainer, which counts by the loader's length.
"""

import ast
import linecache

from ..user_frame import is_user_file

_TRAINERS = {
    "lightning": "Lightning counts the batches itself: use accumulate_grad_batches",
    "pytorch_lightning": "Lightning counts the batches itself: use accumulate_grad_batches",
    "transformers": "the Trainer counts the batches itself: use gradient_accumulation_steps",
    "accelerate": "Accelerate draws a batch ahead: use gradient_accumulation_steps",
}
_GENERATOR = 0x20


def who_counts(frame):
    """Why the loop that draws from a loader can't be handed parts, or an empty string."""
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root in _TRAINERS:
            return _TRAINERS[root]
        if is_user_file(frame.f_code.co_filename):
            loop = _innermost_loop(frame)
            if isinstance(loop, ast.While) or (loop is not None and _is_counted(loop.iter)):
                return "the loop asks for a number of batches (line %d), and would end early" % loop.lineno
            if loop is not None and not frame.f_code.co_flags & _GENERATOR:
                return ""
        frame = frame.f_back
    return ""


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
