"""The statements after an eager model call once more, operation by operation: where numbers stop being numbers.

Only names whose values are no numbers are computed again, from the values that the user's frame still holds; models,
layers and random functions are never called, so that nothing of the training's state moves.
"""

import sys

from ..user_frame import is_user_file, place
from . import _loss_slice, _np_finite
from ._pure_code import Purity

_LARGE = 1 << 22
# TensorFlow's names of operations, as people write them.
_NAMES = {
    "RealDiv": "div", "Div": "div", "DivNoNan": "div", "Xdivy": "div", "Log": "log", "Log1p": "log1p", "Sqrt": "sqrt",
    "Rsqrt": "rsqrt", "Pow": "pow", "Exp": "exp", "Acos": "acos", "Asin": "asin", "Reciprocal": "reciprocal",
    "Inv": "reciprocal", "Softmax": "softmax", "LogSoftmax": "log_softmax", "Mean": "mean", "Expm1": "expm1",
}  # fmt: skip
_PLACING = frozenset(("Fill", "Select", "SelectV2", "Where", "Cast", "Identity", "Reshape", "Const", "ZerosLike"))


class _Enough(Exception):
    """It is found, or the time is over."""


def first_bad(frame, eager_tensor, clock):
    """The first operation of finite inputs whose result was not, as fields; {} where it can't be known."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    callbacks = sys.modules.get("tensorflow.python.framework.op_callbacks")
    if frame is None or callbacks is None:
        return {}
    env = dict(frame.f_globals)
    held = frame.f_locals
    env.update(held)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & 1:
        held.clear()

    def is_bad(name):
        value = env.get(name)
        return value.__class__ is eager_tensor and _bad(value)

    names = {name for name in _loss_slice.names_near(frame) if is_bad(name)}
    statements = _loss_slice.of_frame(frame, names, is_bad, within=True) if names else None
    roots = ("tensorflow", "keras", "math")
    purity = Purity(eager_tensor, _NoModule, lambda _module: False, roots, ("random", "dropout"))
    if not statements or not purity.statements(statements, env):
        return {}
    return _watched(callbacks, _loss_slice.compiled(statements, frame.f_code.co_filename), env, clock)


def _watched(callbacks, code, env, clock):
    found = {}

    def saw(op_type, inputs, _attributes, outputs, op_name=None, graph=None):  # noqa: ARG001
        if graph is not None or found:
            return None
        if clock.over():
            raise _Enough
        if op_type not in _PLACING and any(_bad(t) for t in outputs) and not any(_bad(t) for t in inputs):
            at = sys._getframe(1)
            while at is not None and not is_user_file(at.f_code.co_filename):
                at = at.f_back
            name = _NAMES.get(op_type, op_type.lower())
            found.update(place(at), op=name, via="replay")
            found["op_dtype"] = outputs[0].dtype.name
            edge = _edge(name, [_np_finite.as_array(t) for t in inputs])
            if edge:
                found["edge"] = edge
            raise _Enough
        return None

    callbacks.add_op_callback(saw)
    try:
        exec(code, dict(env))
    except Exception:
        pass  # found, or a statement that can't be run again
    finally:
        callbacks.remove_op_callback(saw)
    return found


class _NoModule:
    """Nothing is one: no model is called again."""


def _bad(value):
    array = _np_finite.as_array(value)
    if array is None or array.dtype.kind != "f" or array.size > _LARGE:
        return False
    total = float(sys.modules["numpy"].isfinite(array).all())
    return not total


def _edge(name, inputs):
    if not inputs or inputs[0] is None:
        return ""
    a = inputs[0]
    b = inputs[1] if len(inputs) > 1 else None
    cases = {
        "log": ((a == 0, "log of 0"), (a < 0, "log of a negative number")),
        "log1p": ((a <= -1, "log1p at or below -1"),),
        "sqrt": ((a < 0, "square root of a negative number"),),
        "rsqrt": ((a == 0, "division by zero"), (a < 0, "square root of a negative number")),
        "reciprocal": ((a == 0, "division by zero"),),
        "exp": ((a > 0, "exp overflows"),),
        "acos": ((abs(a) > 1, "acos outside of [-1, 1]"),),
        "asin": ((abs(a) > 1, "asin outside of [-1, 1]"),),
    }
    if name == "div" and b is not None:
        zero = (b == 0).any()
        return "" if not zero else "0 / 0" if ((b == 0) & (a == 0)).any() else "division by zero"
    if name == "pow":
        return "a power that is undefined or overflows"
    if name == "mean" and not a.size:
        return "mean of nothing"
    return next((words for wrong, words in cases.get(name, ()) if wrong.any()), "")
