"""Which function is traced or compiled again and again: past the warm-up, at a cost, and for a reason that is known.

A few traces are ordinary: training and validation, the smaller last batch, a handful of buckets, a model for each fold.
They stop. An illness goes on for as long as the run does, or until the compiler gives up.
"""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import memory_curve
from holter.diagnosis.slow.traces import Change, Traced, traced_in
from holter.finding import Culprit, Evidence, Grade
from holter.record.events.looks import Trace
from holter.record.events.timeline import StepWindow
from holter.units import count, duration, share, size

_RETRACES = 5  # fewer are ordinary
_A_MODELS_OWN = 3  # functions: it trains, is evaluated, predicts
_SECONDS = 1.0  # spent on them: less is not worth a word
_COSTLY = 0.1  # of the time since the first trace
_OFTEN_SHARE = 0.2  # of the steps
_MAIN_SHARE = 0.5  # of the time


@dataclass(frozen=True)
class Retracing:
    """A function that is traced without end: what changes, how sure it is, and what it costs."""

    traced: Traced
    change: Change
    grade: Grade
    steps: int
    seconds: float
    claim: str
    evidence: tuple[Evidence, ...]

    @property
    def kind(self) -> str:
        return self.change.kind


@once
def retracing_of(record: RecordLike) -> Retracing | None:
    """Find the function whose tracing costs the most, where it goes on past any warm-up."""
    found = [judged for traced in traced_in(record) if (judged := _judge(record, traced)) is not None]
    order = {"established": 0, "supported": 1, "hypothesis": 2}
    return min(found, key=lambda one: (order[one.grade], -one.seconds), default=None)


def _judge(record: RecordLike, traced: Traced) -> Retracing | None:
    change = traced.main
    if change is None or not traced.history:
        return None
    if change.kind == "closure" and traced.what == "keras" and traced.functions <= _A_MODELS_OWN * traced.owners:
        return None  # each model of a search or a fold is traced for its own training and validation
    begin, first_step, _, first_seconds = traced.history[0]
    end = max(begin, _last_sign(record, traced.pid))
    period, seconds = end - begin, traced.seconds - first_seconds
    steps = max(0, (progress_of(record).step or 0) - first_step)
    grade: Grade
    if traced.limit:
        # The compiler itself says that it has given up; a run of a moment is not worth the word.
        grade = "established" if period >= 3 and traced.limit >= _RETRACES else "hypothesis"
    else:
        if traced.retraces < _RETRACES or seconds < _SECONDS or not _goes_on(traced, begin, end):
            return None
        costly = seconds >= _COSTLY * period
        often = steps > 0 and traced.retraces >= _OFTEN_SHARE * steps and seconds >= 0.03 * period
        if not costly and (traced.jit or not often):
            return None
        sure = change.count >= 0.5 * (traced.count - 1)
        if traced.jit:
            # Without a yardstick a wait for the data, which the step draws itself, may be in the time.
            sure = seconds >= _MAIN_SHARE * period and (traced.usual > 0 or not traced.draws)
        grade = "established" if sure else "supported"
    claim = _claim(traced, change, steps, period, seconds)
    evidence = tuple(_evidence(record, traced, begin, end))
    return Retracing(traced, change, grade, steps, seconds, claim, evidence)


def _last_sign(record: RecordLike, pid: int | None) -> float:
    """Give the last moment at which the process was seen training."""
    ends = [line.m for line in record.of(StepWindow) if line.pid == pid]
    ends += [event.m for event in record.of(Trace) if event.pid == pid]
    return max(ends, default=0.0)


def _goes_on(traced: Traced, begin: float, end: float) -> bool:
    """Tell whether traces came in each third of the way: a warm-up has none in the later ones."""
    third = (end - begin) / 3
    early, middle = traced.count_at(begin + third), traced.count_at(begin + 2 * third)
    return third > 0 and early < middle < traced.count


def _claim(traced: Traced, change: Change, steps: int, period: float, seconds: float) -> str:
    if traced.jit:
        return _claim_of_xla(traced, change, steps, period, seconds)
    what = "compiled" if traced.what == "torch.compile" else "traced"
    name = f"`{traced.name}`" if traced.what != "keras" else "the step that Keras makes of the model"
    if traced.what == "torch.jit.trace":
        name = "the model"
    over = f" in {count(steps)} steps" if steps else ""
    times = f"{name} was {what} {count(traced.count)} times{over}"
    why = because(traced, change)
    if traced.limit:
        given_up = f"then torch.compile gave up (its limit is {traced.limit}) and the rest of the run was not compiled"
        return f"{times}, {why}; {given_up}"
    took = f"{duration(seconds)}, {share(min(1.0, seconds / max(period, 1e-9)))} of the time since the first trace"
    return f"{times}, {why}: {took}, went into it"


def _claim_of_xla(traced: Traced, change: Change, steps: int, period: float, seconds: float) -> str:
    name = f"`{traced.name}`" if traced.what != "keras" else "the step that Keras makes of the model"
    over = f" in {count(steps)} steps" if steps else ""
    argument = f"`{change.argument}`" if change.argument and traced.what != "keras" else "the batch"
    values = f" ({', '.join(change.examples)}, …)" if change.examples else ""
    times = f"XLA compiled {name} {count(traced.count)} times{over}, once for each new shape of {argument}{values}"
    part = f"{duration(seconds)}, {share(min(1.0, seconds / max(period, 1e-9)))} of the time since the first"
    if traced.usual > 0:
        return f"{times}: {part}, went into it, where a step with a shape seen before takes {duration(traced.usual)}"
    return f"{times}: the steps that met one took {part}"


def because(traced: Traced, change: Change) -> str:
    """Say what changes from trace to trace."""
    seen = ", ".join(change.examples)
    if change.kind == "scalar":
        values = f" ({seen}, …)" if seen else ""
        return f"since the Python value `{change.argument}` is another each time{values}"
    if change.kind == "shape":
        values = f" ({seen}, …)" if seen else ""
        return f"since the shape or type of `{change.argument or 'its input'}` changes{values}"
    if traced.what == "keras":
        return "since the model is compiled anew each time"
    if change.argument and traced.functions < 0.5 * traced.count:
        return f"since `{change.argument}` is a new object each time"
    return "since the function itself is made anew each time"


def _evidence(record: RecordLike, traced: Traced, begin: float, end: float) -> list[Evidence]:
    found = []
    for m, step, times, seconds in _some(traced.history):
        started, mono = record.facts.started, record.facts.mono
        when = started + m - mono if started is not None and mono is not None else None
        what = "compilations" if traced.jit else "traces"
        found.append(Evidence(what, f"{count(times)} by step {count(step)}, {duration(seconds)} in all", when))
    if traced.call is not None:
        found.append(Evidence("called at", f"{traced.call.file}:{traced.call.line}  {traced.call.code}"))
    curve = memory_curve(record)
    inside = [value for m, value in curve.points if begin <= m <= end] if curve is not None else []
    if len(inside) > 3 and inside[-1] > inside[0] + 20e6:
        kept = "each compilation is kept" if traced.jit else "every trace keeps its graph"
        found.append(Evidence("memory", f"grew from {size(inside[0])} to {size(inside[-1])} meanwhile: {kept}"))
    return found


def _some(history: tuple[tuple[float, int, int, float], ...]) -> list[tuple[float, int, int, float]]:
    """Give the first, the middle and the last of what was told."""
    return [history[n] for n in sorted({0, len(history) // 2, len(history) - 1})]


def culprit_of(found: Retracing) -> Culprit:
    """Name the line that has to change."""
    traced, change = found.traced, found.change
    if found.kind == "scalar":
        # A value that the function reads itself, an attribute or a global, is not passed on the line of the call.
        inner = "." in change.argument or traced.call is None
        return (traced.use if inner else traced.call) or traced.call or traced.defined
    if found.kind == "closure":
        passed = change.argument and traced.functions < 0.5 * traced.count
        return (traced.call if passed else traced.maker) or traced.call or traced.defined
    # How a function is to be compiled is said where that is asked for; TensorFlow's is a decorator of its own.
    compiled = traced.maker if traced.what == "torch.compile" or traced.jit else None
    return compiled or traced.defined
