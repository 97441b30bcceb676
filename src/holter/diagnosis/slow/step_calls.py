"""What a step is made of, and what it costs: the looks that the agent took at single steps, beside the step windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Culprit, Evidence
from holter.record.events.agent import Batch
from holter.record.events.looks import BusyLine as CallsOfLine
from holter.record.events.looks import StepLook
from holter.record.events.timeline import Nvidia, StepWindow, Threads
from holter.units import count, duration, share

_MANY_CALLS = 1000  # from the user's own lines: so many are operations too, whatever they are
_PHASES = ("data", "forward", "backward", "optimizer", "other")


@dataclass(frozen=True)
class BusyLine:
    """A line of the user's, and how often a framework was called from it in one step."""

    at: Culprit
    calls: int


@dataclass(frozen=True)
class Step:
    """The usual step of the run: its parts, its time, and how much time went into such steps."""

    operations: int  # nodes of the graph, or operations run eagerly
    repeated: BusyLine | None
    lines: tuple[BusyLine, ...]  # all that were seen to call a framework, those that call most first
    kinds: tuple[str, ...]
    elements: float | None  # numbers that the usual operation gives
    by_calls: bool  # counted by the calls on the user's lines, not by what they compute
    eager_tf: bool
    run_eagerly: bool
    compiled: Culprit | None
    fit: Culprit | None
    seconds: float  # of one step, spent on anything but data
    total: float  # of all steps
    steps: int
    batch: int
    phase_shares: tuple[tuple[str, float], ...]  # phase and its share

    @property
    def each(self) -> float:
        """Give the time for one operation; the whole step where none was counted."""
        return self.seconds / max(1, self.operations)

    @property
    def data(self) -> float:
        """Give the share of the time that the steps waited for data."""
        return dict(self.phase_shares).get("data", 0.0)

    @property
    def in_python(self) -> float:
        """Give the share of the time in which the user's own lines ran: neither data, backward nor optimizer."""
        phase_shares = dict(self.phase_shares)
        return phase_shares.get("forward", 0.0) + phase_shares.get("other", 0.0)

    @property
    def in_training(self) -> float:
        """Give the share of the time in the model, its backward and the update; the rest is other work."""
        phase_shares = dict(self.phase_shares)
        return sum(phase_shares.get(phase, 0.0) for phase in ("forward", "backward", "optimizer"))

    @property
    def spent(self) -> Evidence:
        """Say where a step's time goes."""
        words = ", ".join(f"{name} {share(part)}" for name, part in self.phase_shares if part >= 0.02)
        return Evidence("one step", f"{duration(self.total / max(1, self.steps))}: {words}")


@once
def usual_step(record: RecordLike) -> Step | None:
    """Put the looks at single steps and the windows of all of them together; None before there are any steps."""
    pid = progress_of(record).pid
    windows = [line for line in record.of(StepWindow) if line.pid == pid and line.sum]
    steps = sum(line.n or 0 for line in windows)
    total = sum(line.sum or 0.0 for line in windows)
    if not steps or total <= 0:
        return None
    times = {phase: sum(line.phases[phase] for line in windows) for phase in _PHASES}
    known = sum(times.values())
    phase_shares = tuple((phase, spent / known) for phase, spent in times.items()) if known > 0 else ()
    looks = [event for event in record.of(StepLook) if event.pid == pid and event.steps]
    # A look may fall on a step with a validation in it; the usual one is the middle one.
    looks.sort(key=_operations)
    look = looks[(len(looks) - 1) // 2] if looks else StepLook()
    batches = [found for line in windows if (found := line.batch)]
    data = dict(phase_shares).get("data", 0.0)
    return Step(
        operations=round(_operations(look)),
        repeated=_busiest(look),
        lines=_busy_lines(look),
        kinds=tuple(name for name, _ in look.kinds),
        elements=look.elements or _batch_elements(record, pid),
        by_calls=_operations(look) > _computed(look),
        eager_tf=bool(look.ops),
        run_eagerly=bool(look.run_eagerly),
        compiled=culprit_on(look.compiled),
        fit=culprit_on(look.fit),
        seconds=total / steps * (1.0 - data),
        total=total,
        steps=steps,
        batch=int(median(batches)) if batches else 0,
        phase_shares=phase_shares,
    )


def _operations(look: StepLook) -> float:
    """Count a step's operations; where the look had to end before the step did, the rest went on as it began."""
    calls = sum(row.calls or 0 for row in look.lines)
    called = (calls if calls >= _MANY_CALLS else 0) * _all_of_it(look) / (look.steps or 1)
    computed = _computed(look)
    return computed if computed >= _MANY_CALLS else max(computed, called)


def _computed(look: StepLook) -> float:
    ran = (look.ops or 0.0) * _all_of_it(look)
    return max(look.nodes or 0.0, ran) / (look.steps or 1)


def _all_of_it(look: StepLook) -> float:
    watched, took = look.watched or 0.0, look.took or 0.0
    return took / watched if 0 < watched < took else 1.0


def _busiest(look: StepLook) -> BusyLine | None:
    listed = look.lines
    if not listed:
        return None
    # Of lines called as often, the one that runs the most; of lines called once, the one behind which most is run.
    row = max(listed, key=lambda row: (row.calls or 0, row.ops or 0))
    if (row.calls or 0) < 16:
        row = max(listed, key=lambda row: row.ops or 0)
    return _busy(look, row)


def _busy_lines(look: StepLook) -> tuple[BusyLine, ...]:
    rows = sorted(look.lines, key=lambda row: -(row.calls or 0))
    return tuple(found for row in rows if (found := _busy(look, row)) is not None)


def _busy(look: StepLook, row: CallsOfLine) -> BusyLine | None:
    at = culprit_on(row)
    return BusyLine(at, round((row.calls or 0) * _all_of_it(look) / (look.steps or 1))) if at is not None else None


def _batch_elements(record: RecordLike, pid: int | None) -> float | None:
    """Give the numbers in a batch's first tensor: where operations can't be measured, what they work on can."""
    for event in reversed(record.of(Batch)):
        if event.pid == pid and event.shapes:
            return math.prod(event.shapes[0][0], start=1.0)
    return None


def gpu_use(record: RecordLike) -> float | None:
    """Give how busy the GPU that the run holds memory on usually was, from 0 to 1; None without one."""
    found = [
        busy / 100
        for _, reading in record.readings(Nvidia)
        for row in reading.rows
        if row.tree and (busy := row.util) is not None
    ]
    return median(found) if len(found) >= 3 else None


def overhead_evidence(record: RecordLike, step: Step) -> tuple[Evidence, ...]:
    """Gather what shows that the time goes into starting operations, not into computing."""
    found = [step.spent]
    if step.operations >= 10:
        kinds = ", ".join(name.removesuffix("Backward0") for name in step.kinds[:4])
        of = f" ({kinds}, …)" if kinds else ""
        found.append(Evidence("operations in a step", f"{count(step.operations)}{of}, {duration(step.each)} for each"))
    if step.elements:
        found.append(Evidence("size of an operation", f"usually {count(int(step.elements))} numbers"))
    busy = gpu_use(record)
    if busy is not None:
        found.append(Evidence("GPU", f"busy {share(busy)} of the time"))
    threads = [
        cpu for _, reading in record.readings(Threads) for row in reading.rows[:1] if (cpu := row.cpu) is not None
    ]
    if len(threads) >= 3:
        found.append(Evidence("busiest thread", f"{share(median(threads))} of a core"))
    return tuple(found)
