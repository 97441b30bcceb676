"""How far the training came: steps, epochs, what was planned, and where in time."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.evidence import frameworks_on
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.record.events.agent import EpochBegins, Schedule
from holter.record.events.recorder import Ended, Exited, Spawned, Started
from holter.record.events.schema import number
from holter.record.events.timeline import AgentState, Sample, StepWindow
from holter.units import count, duration


@dataclass(frozen=True)
class Progress:
    """The steps of the process that did the most of them; 0 or None where it is not known."""

    pid: int | None = None
    step: int | None = None
    epoch: int | None = None
    planned: int | None = None
    epochs: int | None = None
    source: str = ""
    first_step_m: float | None = None
    last_step_m: float | None = None
    phase: str = ""
    phase_since: float | None = None


@once
def progress_of(record: RecordLike) -> Progress:
    """Read the progress from step windows, the agents' last state, and the plan they announced."""
    steps: dict[int, int] = {}
    for line in record.of(StepWindow):
        pid, last = line.pid, line.last
        if pid is not None and last is not None:
            steps[pid] = max(steps.get(pid, 0), last)
    states = _last_states(record)
    for pid, now in states.items():
        steps[pid] = max(steps.get(pid, 0), now.step or 0)
    planned_by = {pid for event in record.of(Schedule) if (pid := event.pid) is not None}
    if not steps and not planned_by:
        return Progress()
    # Of several ranks or folds the one furthest on speaks for the run.
    chosen = max(steps or dict.fromkeys(planned_by, 0), key=lambda pid: (steps.get(pid, 0), -pid))
    mine = [line for line in record.of(StepWindow) if line.pid == chosen]
    state = states.get(chosen, AgentState())
    epochs_seen = [state.epoch, *(line.epoch for line in mine)]
    epochs_seen += [event.epoch for event in record.of(EpochBegins) if event.pid == chosen]
    reached = max((epoch for epoch in epochs_seen if epoch), default=None)
    planned, epochs, source = _plan(record, chosen, state.planned)
    first = mine[0].m - (mine[0].sum or 0.0) if mine else None
    return Progress(
        pid=chosen,
        step=steps.get(chosen) or None,
        epoch=reached,
        planned=planned,
        epochs=epochs,
        source=source,
        first_step_m=first,
        last_step_m=mine[-1].m if mine else None,
        phase=state.phase,
        phase_since=state.since,
    )


def _last_states(record: RecordLike) -> dict[int, AgentState]:
    return {state.pid: state for line in record.of(Sample) for state in line.agents if state.pid is not None}


def _plan(record: RecordLike, pid: int, steps_by_ring: int | None) -> tuple[int | None, int | None, str]:
    planned, epochs, source = steps_by_ring or None, None, ""
    for event in record.of(Schedule):
        if event.pid not in (pid, None):
            continue
        epochs = event.epochs or epochs
        source = event.source or source
        if not steps_by_ring:
            planned = event.steps or planned
    return planned, epochs, source


@once
def windows_of(record: RecordLike) -> list[StepWindow]:
    """The step windows of the process that speaks for the run."""
    pid = progress_of(record).pid
    return [line for line in record.of(StepWindow) if line.pid == pid and (line.n or 0) > 0]


def first_line(record: RecordLike) -> float:
    """Give the time of the first line of the timeline; 0 where there is none."""
    return min((number(line.get("m")) or 0.0 for line in record.timeline), default=0.0)


@once
def last_sample(record: RecordLike) -> float | None:
    """Give the time of the last sample of the probes; None where there is none."""
    return max((line.m for line in record.of(Sample)), default=None)


@once
def last_line(record: RecordLike) -> float:
    """Give the time of the last line that was written; 0 where there is none."""
    return max((number(line.get("m")) or 0.0 for line in (*record.events, *record.timeline)), default=0.0)


@once
def lasted(record: RecordLike) -> float | None:
    """Say how long the run took, from its start to its end or to the last line that was written."""
    if record.facts.attached is not None:
        # The process had been going for long when Holter came to look at it.
        return None
    start = min((event.m for event in (*record.of(Spawned), *record.of(Started))), default=record.facts.mono)
    last = min((event.m for event in (*record.of(Exited), *record.of(Ended))), default=last_line(record))
    return last - start if start is not None and last >= start else None


def place(record: RecordLike, *, done: bool = False) -> str:
    """Say where the run was, as the end of a sentence: ', 12 min 4 s in, at epoch 7, step 812 of 9,380'."""
    found, took = progress_of(record), lasted(record)
    words = ""
    if took is not None:
        words = f" in {duration(took)}" if done else f", {duration(took)} in"
    if found.epoch or found.step:
        at = [f"epoch {count(found.epoch)}"] if found.epoch else []
        if found.step:
            of = f" of {count(found.planned)}" if found.planned and found.planned >= found.step else ""
            at.append(f"step {count(found.step)}{of}")
        words += ", at " + ", ".join(at)
    elif frameworks_on(record):
        words += ", before the first step was done"
    return words
