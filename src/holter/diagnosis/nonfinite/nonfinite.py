"""Loss or gradients that became non-finite: when, what went first, and which of four reasons the facts allow."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from holter.diagnosis.core.evidence import user_files
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.fields import flag, moment, number, part, rows, text, whole
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of
from holter.diagnosis.ending.raised import message_of, raised_in
from holter.diagnosis.nonfinite.edge_calls import edge_calls
from holter.finding import Grade
from holter.source.lines import function_around

Detail = Literal["learning-rate", "data", "precision", "math"]

_HALF = ("float16", "half", "mixed_float16")
# Edges that need no growth to be met: the function is undefined there, whatever the size of the values.
_OVERFLOWS = re.compile(r"overflow")
_SAYS_NAN = re.compile(
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
    event: dict[str, Any]
    growth: Growth | None
    when: float | None

    @property
    def what(self) -> str:
        return text(self.event, "what") or "loss"

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
    event = _event(record) or _from_windows(record) or _from_message(record)
    if event is None:
        return None
    losses = _numbers(event, "losses") or _window_losses(record, event)
    growth = growth_of(losses)
    if text(event, "framework") in ("keras", "tensorflow") and not text(event, "op"):
        # A compiled step leaves no graph to look at: what its source says has to do.
        event = {**event, "slopes": _suspects(record), "static": True}
    detail, grade = _reason(event, growth)
    return Nonfinite(detail, grade, whole(event, "step"), event, growth, number(event, "t"))


def _suspects(record: RecordLike) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in user_files(record):
        lines = record.source(file)
        for line, kind in edge_calls(lines):
            place = {"file": file, "line": line, "code": lines[line - 1].strip()[:200]}
            place["function"] = function_around(lines, line)
            found.append({"op": kind, "lines": [place], "sure": kind in ("log", "sqrt", "acos", "asin", "exp")})
    return found[:12]


def _event(record: RecordLike) -> dict[str, Any] | None:
    """Give the first look that was not followed by a loss that is a number, of the process that met it first.

    A run may lose a number now and then, recover, and lose it for good: the last look speaks for that.
    """
    lasting = []
    looks = record.events_of("nan")
    at_end = _from_windows(record)
    if at_end is not None and looks and record.events_of("nan-over"):
        return max((look for look in looks if whole(look, "pid") == at_end["pid"]), key=moment, default=at_end)
    for event in looks:
        pid, m = whole(event, "pid"), moment(event)
        later = [one for one in record.events_of("nan-over") if whole(one, "pid") == pid and moment(one) >= m]
        if not later:
            lasting.append(event)
    return min(lasting, key=moment) if lasting else None


def _from_windows(record: RecordLike) -> dict[str, Any] | None:
    """Give the same from the windows of steps, where no look was taken or its line was lost."""
    bad: dict[int, dict[str, Any]] = {}
    recovered: dict[int, int] = {}  # the last step of which a loss was seen to be a number again
    for over in record.events_of("nan-over"):
        recovered[whole(over, "pid") or 0] = whole(over, "step") or 0
    for line in record.lines("steps"):
        pid, step = whole(line, "pid") or 0, whole(line, "bad_loss") or whole(line, "bad_grad")
        if step is not None and step <= recovered.get(pid, 0):
            bad.pop(pid, None)  # within one window
            continue
        if step is not None and whole(line, "bad_loss") is None and pid not in bad:
            continue  # a norm that was not finite once, as a loss scaler makes it
        if step is not None:
            bad.setdefault(pid, {"step": step, "m": moment(line), "t": number(line, "t"), "pid": pid, "what": "loss"})
        elif number(part(line, "loss"), "last") is not None and (whole(line, "n") or 0) > 0:
            bad.pop(pid, None)  # it recovered
    for event in bad.values():
        rates = [number(line, "lr") for line in record.lines("steps") if moment(line) <= number(event, "m")]  # type: ignore[operator]
        event["lr"] = next((rate for rate in reversed(rates) if rate is not None), None)
    return min(bad.values(), key=moment) if bad else None


def _from_message(record: RecordLike) -> dict[str, Any] | None:
    """Give what the exception that ended the run says, where nothing else has seen it."""
    left = exit_of(record)
    raised = raised_in(record, left.m) if left is not None and left.code else None
    said = message_of(raised)
    if raised is None or not (_SAYS_NAN.search(said) or _BAD_INPUT.search(said)):
        return None
    event: dict[str, Any] = {"what": "loss", "t": raised.when, "said": raised.root.headline}
    event["m"] = left.m if left is not None else None
    if _BAD_INPUT.search(said):
        event |= {"what": "input", "inputs": {"bad": "nan"}, "only_said": True}
    return event


def magnitude(line: object, key: str) -> float | None:
    """Give a finite number of any size: weights that ran away are larger than what is a number elsewhere."""
    value = line.get(key) if isinstance(line, dict) else None
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]


def _raised_otherwise(record: RecordLike) -> bool:
    left = exit_of(record)
    raised = raised_in(record, left.m) if left is not None and left.code else None
    return raised is not None and not _SAYS_NAN.search(message_of(raised))


def _numbers(event: dict[str, Any], key: str) -> list[float]:
    values = event.get(key)
    found = values if isinstance(values, list) else []
    return [float(v) for v in found if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]


def _window_losses(record: RecordLike, event: dict[str, Any]) -> list[float]:
    before, pid = number(event, "m"), whole(event, "pid")
    found = []
    for line in record.lines("steps"):
        last = number(part(line, "loss"), "max"), number(part(line, "loss"), "last")
        if (pid is None or whole(line, "pid") == pid) and (before is None or moment(line) <= before):
            found += [value for value in last if value is not None]
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


def _reason(event: dict[str, Any], growth: Growth | None) -> tuple[Detail, Grade]:
    grew = growth is not None and growth.clear
    op, edge = text(event, "op"), text(event, "edge")
    bad_input = _bad_input(event)
    by_value = bool(edge) and not _OVERFLOWS.search(edge)
    if bad_input is not None and text(bad_input, "bad") == "outlier":
        if not by_value:
            return "data", "supported"
    # An operation that had only finite values before it clears the batch.
    elif bad_input is not None and not (op and text(event, "via") in ("replay", "graph")):
        return "data", "supported" if flag(event, "only_said") else "established"
    scale = number(event, "scale")
    collapsed = scale is not None and scale < 1e-3
    half = _half(event) or collapsed
    params = part(event, "params")
    huge = (magnitude(params, "max") or 0) >= _HUGE
    if op:
        runaway = grew and growth is not None and growth.rising >= 4 and growth.times >= 1e3
        return _of_operation(event, by_value, grew, huge, half and not runaway)
    if half and not (grew and growth is not None and growth.rising >= 3):
        return "precision", "supported"
    if grew or huge:
        return "learning-rate", "supported"
    # That the loss is non-finite and stays so was seen; what is left to blame is the least that fits.
    looked = text(event, "k") == "nan" and (whole(event, "looked_at") or 0) > 0 and not flag(event, "cut")
    looked = looked or bool(text(event, "said"))
    slopes = rows(event, "slopes")
    if slopes:
        sure = [row for row in slopes if flag(row, "sure")] or slopes
        lines = {(text(place, "file"), whole(place, "line")) for row in sure for place in rows(row, "lines")}
        one = len(lines) == 1 and flag(sure[0], "sure")
        # From the source alone only when the data was seen to be finite, so that little else is left.
        seen = not flag(event, "static") or ((whole(event, "looked_at") or 0) > 0 and not flag(event, "cut"))
        return "math", "supported" if (one and seen) or looked else "hypothesis"
    return "learning-rate", "supported" if looked else "hypothesis"


def _of_operation(event: dict[str, Any], by_value: bool, grew: bool, huge: bool, half: bool) -> tuple[Detail, Grade]:
    proven: Grade = "established" if text(event, "via") == "replay" or by_value else "supported"
    if half and flag(event, "finite_in_float32") is True:
        return "precision", "established"
    if grew or (huge and not by_value):
        return "learning-rate", "supported"
    if half and not by_value:
        return "precision", "supported"
    return ("math", proven) if text(event, "edge") or text(event, "what") == "gradient" else ("math", "supported")


def _bad_input(event: dict[str, Any]) -> dict[str, Any] | None:
    """Give the tensor of the batch that was not finite, or far too large, at that step or at a spike before it."""
    found = part(event, "inputs")
    if text(found, "bad"):
        return found
    # Only the first step that was out of the ordinary counts: what came after it may be its consequence.
    first = part((rows(event, "spikes") or [{}])[0], "inputs")
    return first if text(first, "bad") else None


def _half(event: dict[str, Any]) -> bool:
    places = (text(event, "op_dtype"), text(event, "dtype"), text(event, "autocast"), text(event, "policy"))
    return text(part(event, "params"), "dtype") in _HALF or any(place in _HALF for place in places)


bad_input_of = _bad_input
