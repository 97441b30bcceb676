"""Someone stopped the run for a while, and did not end it.

What it sees: a command that was stopped with a signal (Ctrl-Z, SIGSTOP, a scheduler that suspends jobs), and for how
long.
Why it matters: a stopped run looks hung: no step, no CPU, no error; it only waits to be told to go on.
May be confused with: a hang, which nothing but its end undoes; a machine that slept; a short pause, as of a debugger
or a backup that attaches.
How sure: established: the keeper of the command was told of both, the stop and the going on.
Cure: SIGCONT (fg), and ask who stopped it.
"""

from __future__ import annotations

from holter.diagnosis.core.progress import last_sample, lasted
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at, exit_of
from holter.finding import Cure, Ending, Evidence, Finding
from holter.record.events.recorder import Continued, Stopped
from holter.units import duration

CAUSE = "external.stopped"

_NOW = 10.0  # seconds: a run that still stands after that was not stopped by mistake
_SHORTEST = 60.0
_MIN_SHARE = 0.2


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say for how long the run stood, and whether it still does."""
    pauses, stands = _pauses(record)
    total = sum(end - begin for begin, end in pauses)
    took = lasted(record) or total
    ended_in_it = stands and ending.kind in ("running", "hung", "killed", "interrupted")
    if ended_in_it and pauses[-1][1] - pauses[-1][0] >= _NOW:
        begin, end = pauses[-1]
        word = "has been" if ending.kind in ("running", "hung") and exit_of(record) is None else "had been"
        claim = f"the run {word} stopped with a signal (Ctrl-Z, SIGSTOP) for {duration(end - begin)}; it is not hung"
    elif total >= _SHORTEST and total >= _MIN_SHARE * took:
        claim = f"the run was stopped with a signal (Ctrl-Z, SIGSTOP) for {duration(total)} of {duration(took)}"
    else:
        return None
    evidence = [Evidence("stopped", event.signal or "a signal", event.t) for event in record.of(Stopped)[-2:]]
    pid = next((event.pid for event in record.of(Stopped)), None)
    cures = (Cure("let it go on, and ask who stopped it", f"kill -CONT {pid}" if pid else "kill -CONT PID"),)
    return Finding(CAUSE, "established", claim, tuple(evidence), None, cures)


def _pauses(record: RecordLike) -> tuple[list[tuple[float, float]], bool]:
    """Give the times in which the command stood, and whether it still stood at the end of the record."""
    events: list[Stopped | Continued] = [*record.of(Stopped), *record.of(Continued)]
    end = ended_at(record) or last_sample(record) or 0.0
    found, since = [], None
    for event in sorted(events, key=lambda event: event.m):
        if isinstance(event, Stopped):
            since = event.m if since is None else since
        elif since is not None:
            found.append((since, event.m))
            since = None
    if since is not None:
        found.append((since, max(end, since)))
    return found, since is not None
