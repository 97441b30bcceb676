"""How far the training came: steps, epochs, what was planned, and where in time."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.fields import moment, number, rows, text, whole
from holter.diagnosis.core.rule import RecordLike
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
    for line in record.lines("steps"):
        pid, last = whole(line, "pid"), whole(line, "last")
        if pid is not None and last is not None:
            steps[pid] = max(steps.get(pid, 0), last)
    states = _last_states(record)
    for pid, state in states.items():
        steps[pid] = max(steps.get(pid, 0), whole(state, "step") or 0)
    planned_by = {pid for event in record.events_of("plan") if (pid := whole(event, "pid")) is not None}
    if not steps and not planned_by:
        return Progress()
    # Of several ranks or folds the one furthest on speaks for the run.
    chosen = max(steps or dict.fromkeys(planned_by, 0), key=lambda pid: (steps.get(pid, 0), -pid))
    mine = [line for line in record.lines("steps") if whole(line, "pid") == chosen]
    epochs_seen = [whole(line, "epoch") for line in (*mine, states.get(chosen, {}))]
    epochs_seen += [whole(event, "epoch") for event in record.events_of("epoch") if whole(event, "pid") == chosen]
    reached = max((epoch for epoch in epochs_seen if epoch), default=None)
    planned, epochs, source = _plan(record, chosen, whole(states.get(chosen, {}), "planned"))
    first = moment(mine[0]) - (number(mine[0], "sum") or 0.0) if mine else None
    return Progress(
        pid=chosen,
        step=steps.get(chosen) or None,
        epoch=reached,
        planned=planned,
        epochs=epochs,
        source=source,
        first_step_m=first,
        last_step_m=moment(mine[-1]) if mine else None,
        phase=text(states.get(chosen, {}), "phase"),
        phase_since=number(states.get(chosen, {}), "since"),
    )


def _last_states(record: RecordLike) -> dict[int, dict[str, object]]:
    found: dict[int, dict[str, object]] = {}
    for line in record.timeline:
        if not isinstance(line, dict):
            continue
        for state in rows(line, "guests"):
            pid = whole(state, "pid")
            if pid is not None:
                found[pid] = state
    return found


def _plan(record: RecordLike, pid: int, said: int | None) -> tuple[int | None, int | None, str]:
    planned, epochs, source = said or None, None, ""
    for event in record.events_of("plan"):
        if whole(event, "pid") not in (pid, None):
            continue
        epochs = whole(event, "epochs") or epochs
        source = text(event, "source") or source
        if not said:
            planned = whole(event, "steps") or planned
    return planned, epochs, source


@once
def lasted(record: RecordLike) -> float | None:
    """Say how long the run took, from its start to its end or to the last line that was written."""
    if number(record.meta, "attached") is not None:
        # The process had been going for long when Holter came to look at it.
        return None
    start = number(record.meta, "mono")
    begun = [moment(event) for kind in ("spawned", "started") for event in record.events_of(kind)]
    start = min(begun, default=start) if begun else start
    over = [moment(event) for kind in ("exited", "end") for event in record.events_of(kind)]
    last = min(over) if over else max((moment(x) for x in (*record.events, *record.timeline)), default=0.0)
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
    elif any(text(event, "state") == "on" for event in record.events_of("adapter")):
        words += ", before the first step was done"
    return words
