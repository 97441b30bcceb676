"""Loss or gradients that became non-finite: when, what went first, and which of four reasons the facts allow."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from holter.diagnosis.core.evidence import user_files
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of
from holter.diagnosis.ending.raised import message_of, raised_at_end
from holter.finding import Grade
from holter.record.events.looks import BadInput, FiniteAgain, NonfiniteLook, Slope
from holter.record.events.rows import Place
from holter.record.events.timeline import StepWindow
from holter.source.lines import function_around, tree_of

Detail = Literal["learning-rate", "data", "precision", "math"]

_HALF_TYPES = ("float16", "half", "mixed_float16")
# Edges that need no growth to be met: the function is undefined there, whatever the size of the values.
_OVERFLOWS = re.compile(r"overflow")
_NAN_IN_MESSAGE = re.compile(
    r"\b(?:loss|grad\w*|weight\w*|param\w*|output\w*)\b[^\n]{0,60}\b(?:nan|inf|non-?finite|not finite|not a number)\b|"
    r"\b(?:nan|inf|non-?finite|infinite)\b[^\n]{0,40}\b(?:loss|grad\w*|weight\w*|param\w*|output\w*)\b|"
    r"returned nan values|Invalid loss, terminating|diverged",
    re.IGNORECASE,
)
_BAD_INPUT = re.compile(
    r"\b(?:input|data|batch|features?|targets?|labels?|X|y)\b[^\n]{0,30}\bcontains?\b[^\n]{0,20}\b(?:nan|inf)",
    re.IGNORECASE,
)
_HUGE = 1e5  # a weight of this size was not learnt
_CALM_LOSSES = 20  # so many before the first bad one would show a training that runs away
_CALLS = {
    "log": "log", "log2": "log", "log10": "log", "sqrt": "sqrt", "rsqrt": "sqrt", "norm": "sqrt", "acos": "acos",
    "asin": "asin", "divide": "div", "truediv": "div", "div": "div", "reciprocal": "div", "exp": "exp",
    "pow": "pow", "euclidean_norm": "sqrt", "reduce_euclidean_norm": "sqrt", "reduce_std": "sqrt",
}  # fmt: skip
# NumPy and math work on data and on plain numbers: what they meet is not trained.
_ASIDE = ("np", "numpy", "math", "random", "logging", "self", "logger", "writer", "mlflow", "wandb")
_SAFE = re.compile(r"eps|1e-|e-0|e-1|\bclip|clamp|maximum|max\(|softplus|_nan|stable|\+ 1(?:\.0*)?\b", re.IGNORECASE)
# What is counted is not zero, and what is printed is not trained.
_COUNTS = re.compile(
    r"len\(|\bn\b|num|count|steps?\b|epochs?|batch|size|shape|total|float\(|int\(|time|\b\d", re.IGNORECASE
)


@dataclass(frozen=True)
class Growth:
    """The losses before the first that is none: their usual level, the highest, and over how many steps it rose."""

    usual: float
    top: float
    rising: int

    @property
    def times(self) -> float:
        return self.top / self.usual if self.usual > 0 else 0.0

    @property
    def clear(self) -> bool:
        """Tell a loss that ran away from one that is only noisy."""
        return (self.times >= 10 and self.rising >= 3) or (self.times >= 30 and self.rising >= 2) or self.times >= 1e3


@dataclass(frozen=True)
class Nonfinite:
    """One loss or gradient that was non-finite and stayed so, and the reason that the facts allow."""

    detail: Detail
    grade: Grade
    step: int | None
    event: NonfiniteLook
    growth: Growth | None
    when: float | None
    message: str = ""  # what an exception says of it, where nothing else has seen it
    static: bool = False  # the operations are read off the source alone

    @property
    def what(self) -> str:
        return self.event.what or "loss"

    @property
    def at(self) -> str:
        return f"at step {self.step:,}" if self.step else "in training"


def nonfinite_of(record: RecordLike) -> Nonfinite | None:
    """Give the run's NaN where its reason can be told: a guess must not stand before another error's."""
    seen = lasting(record)
    return None if seen is not None and seen.grade == "hypothesis" and _raised_otherwise(record) else seen


@once
def lasting(record: RecordLike) -> Nonfinite | None:
    """Give the run's NaN, unless its losses became numbers again by themselves."""
    seen = _seen(record)
    if seen is None:
        return None
    event = seen.event
    growth = growth_of([loss for loss in event.losses if isinstance(loss, float)] or _window_losses(record, event))
    if event.outside or (event.framework in ("keras", "tensorflow") and not event.op):
        # A compiled step leaves no graph to look at, nor does what is not trained: what its source says has to do.
        seen = replace(seen, event=replace(event, slopes=_suspects(record)), static=True)
    detail, grade = _reason(seen, growth)
    return Nonfinite(detail, grade, event.step, seen.event, growth, event.t or None, seen.message, seen.static)


@dataclass(frozen=True)
class _Seen:
    """What was seen of it: by a look of the agent, or else only by a window of steps or in an exception's words."""

    event: NonfiniteLook
    looked: bool = False
    message: str = ""
    static: bool = False


def _seen(record: RecordLike) -> _Seen | None:
    look = _look(record)
    if look is not None:
        return look
    window = _from_windows(record)
    return _Seen(window) if window is not None else _from_message(record)


def _suspects(record: RecordLike) -> tuple[Slope, ...]:
    found = []
    for file in user_files(record):
        lines = record.source(file)
        for line, kind in edge_calls(lines):
            place = Place(file, line, function_around(lines, line), lines[line - 1].strip()[:200])
            found.append(Slope(kind, (place,), kind in ("log", "sqrt", "acos", "asin", "exp")))
    return tuple(found[:12])


def _look(record: RecordLike) -> _Seen | None:
    """Give the first look that was not followed by a loss that is a number, of the process that met it first.

    A run may lose a number now and then, recover, and lose it for good: the last look speaks for that.
    """
    looks, overs = record.of(NonfiniteLook), record.of(FiniteAgain)
    at_end = _from_windows(record)
    if at_end is not None and looks and overs:
        mine = [look for look in looks if look.pid == at_end.pid]
        return _Seen(max(mine, key=lambda look: look.m), looked=True) if mine else _Seen(at_end)
    lasting = [look for look in looks if not any(over.pid == look.pid and over.m >= look.m for over in overs)]
    return _Seen(min(lasting, key=lambda look: look.m), looked=True) if lasting else None


def _from_windows(record: RecordLike) -> NonfiniteLook | None:
    """Give the same from the windows of steps, where no look was taken or its line was lost."""
    bad: dict[int, NonfiniteLook] = {}
    # The last step of which a loss was seen to be a number again.
    recovered = {over.pid or 0: over.step or 0 for over in record.of(FiniteAgain)}
    for line in record.of(StepWindow):
        pid, step = line.pid or 0, line.bad_loss or line.bad_grad
        if step is not None and step <= recovered.get(pid, 0):
            bad.pop(pid, None)  # within one window
            continue
        if step is not None and line.bad_loss is None and pid not in bad:
            continue  # a norm that was not finite once, as a loss scaler makes it
        if step is not None:
            bad.setdefault(pid, NonfiniteLook(line.t, line.m, pid, step, "loss"))
        elif line.loss.last is not None and (line.n or 0) > 0:
            bad.pop(pid, None)  # it recovered
    if not bad:
        return None
    first = min(bad.values(), key=lambda event: event.m)
    rates = [line.lr for line in record.of(StepWindow) if line.m <= first.m and line.lr is not None]
    return replace(first, lr=rates[-1] if rates else None)


def _from_message(record: RecordLike) -> _Seen | None:
    """Give what the exception that ended the run says, where nothing else has seen it."""
    exited = exit_of(record)
    raised = raised_at_end(record) if exited is not None and exited.code else None
    message = message_of(raised)
    if exited is None or raised is None or not (_NAN_IN_MESSAGE.search(message) or _BAD_INPUT.search(message)):
        return None
    event = NonfiniteLook(raised.when or 0.0, exited.m or 0.0, what="loss")
    if _BAD_INPUT.search(message):
        event = replace(event, what="input", inputs=BadInput(bad="nan"))
    return _Seen(event, message=raised.root.headline)


def magnitude(value: float | str | None) -> float | None:
    """Give a value where it is finite: what is not is written as a text."""
    return value if isinstance(value, float) else None


def _raised_otherwise(record: RecordLike) -> bool:
    exited = exit_of(record)
    raised = raised_at_end(record) if exited is not None and exited.code else None
    return raised is not None and not _NAN_IN_MESSAGE.search(message_of(raised))


def _window_losses(record: RecordLike, event: NonfiniteLook) -> list[float]:
    found = []
    for line in record.of(StepWindow):
        if (event.pid is None or line.pid == event.pid) and line.m <= event.m:
            found += [value for value in (line.loss.max, line.loss.last) if value is not None]
    return found[-64:]


def growth_of(losses: list[float]) -> Growth | None:
    """Compare the last losses with the level that was usual before them."""
    sizes = [abs(loss) for loss in losses]
    if len(sizes) < 2:
        return None
    early = sizes[: max(1, len(sizes) - 5)] if len(sizes) >= 10 else sizes[: max(1, len(sizes) // 3)]
    # A run that blows up from its first step on has only its first losses to be compared with.
    usual = max(min(median(early), median(sizes[: max(1, len(sizes) // 4)])), 1e-12)
    top = max(sizes[-8:])
    tail = sizes[-9:]
    rising = sum(later > 1.1 * now for now, later in itertools.pairwise(tail) if later > 2 * usual)
    return Growth(usual, top, rising)


def _reason(seen: _Seen, growth: Growth | None) -> tuple[Detail, Grade]:
    event = seen.event
    grew = growth is not None and growth.clear
    op, edge = event.op, event.edge
    bad_input = bad_input_of(event)
    by_value = bool(edge) and not _OVERFLOWS.search(edge)
    if bad_input is not None and bad_input.bad == "outlier":
        if not by_value:
            return "data", "supported"
    # An operation that had only finite values before it clears the batch.
    elif bad_input is not None and not (op and event.via in ("replay", "graph")):
        return "data", "supported" if seen.message else "established"
    scale = event.scale
    collapsed = scale is not None and scale < 1e-3
    half = _half(event) or collapsed
    huge = event.params is not None and (magnitude(event.params.max) or 0.0) >= _HUGE
    if op:
        runaway = grew and growth is not None and growth.rising >= 4 and growth.times >= 1e3
        return _of_operation(event, by_value, grew, huge, half and not runaway)
    if half and not (grew and growth is not None and growth.rising >= 3):
        return "precision", "supported"
    if event.outside and not event.slopes:
        return "data", "hypothesis"
    if (grew or huge) and not event.outside:
        return "learning-rate", "supported"
    # That the loss is non-finite and stays so was seen; what is left to blame is the least that fits.
    read = (event.looked_at or 0) > 0 and not event.cut
    looked = (seen.looked and read) or bool(seen.message)
    slopes = event.slopes
    if slopes:
        sure = [row for row in slopes if row.sure] or slopes
        lines = {(place.file, place.line) for row in sure for place in row.lines}
        one = len(lines) == 1 and sure[0].sure
        # From the source alone only when the data was seen to be finite, so that little else is left.
        return "math", "supported" if (one and (read or not seen.static)) or looked else "hypothesis"
    return "learning-rate", "supported" if looked and not calm_before(event, growth) else "hypothesis"


def calm_before(event: NonfiniteLook, growth: Growth | None) -> bool:
    """Tell whether many losses before it are known and none ran away: then the update is not all that is to blame."""
    return growth is not None and not growth.clear and len(event.losses) >= _CALM_LOSSES


def _of_operation(event: NonfiniteLook, by_value: bool, grew: bool, huge: bool, half: bool) -> tuple[Detail, Grade]:
    proven: Grade = "established" if event.via == "replay" or by_value else "supported"
    if half and event.finite_in_float32 is True:
        return "precision", "established"
    if grew or (huge and not by_value):
        return "learning-rate", "supported"
    if half and not by_value:
        return "precision", "supported"
    return ("math", proven) if event.edge or event.what == "gradient" else ("math", "supported")


def bad_input_of(event: NonfiniteLook) -> BadInput | None:
    """Give the tensor of the batch that was not finite, or far too large, at that step or at a spike before it."""
    if event.inputs is not None and event.inputs.bad:
        return event.inputs
    # Only the first step that was out of the ordinary counts: what came after it may be its consequence.
    first = event.spikes[0].inputs if event.spikes else BadInput()
    return first if first.bad else None


def _half(event: NonfiniteLook) -> bool:
    places = (event.op_dtype, event.dtype, event.autocast, event.policy)
    weights = event.params.dtype if event.params is not None else ""
    return weights in _HALF_TYPES or any(place in _HALF_TYPES for place in places)


def edge_calls(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Give the line and the kind of each unprotected `log`, `sqrt`, `exp`, division and the like, surest first."""
    tree = tree_of(lines)
    if tree is None:
        return []
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
            root = node.func.value
            inside = ", ".join(ast.unparse(argument) for argument in node.args)
            aside = isinstance(root, ast.Name) and root.id in _ASIDE
            plain = not node.args and isinstance(root, ast.Name) and root.id in _ASIDE
            if not aside and not plain and not _SAFE.search(inside + ast.unparse(root)):
                found.setdefault(node.lineno, _CALLS[node.func.attr])
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            divisor = ast.unparse(node.right)
            if not (isinstance(node.right, ast.Constant) or _SAFE.search(divisor) or _COUNTS.search(divisor)):
                found.setdefault(node.lineno, "div")
    order = ("log", "sqrt", "acos", "asin", "exp", "div", "pow")
    return sorted(found.items(), key=lambda one: (order.index(one[1]), one[0]))
