"""Helper processes of the run's own take the CPU from its training.

What it sees: threads of the trainer that were ready to run and had no core for much of the time, while processes that
the run has started, and that are neither its data workers nor ranks, computed all along.
Why it matters: a helper that looks for a file without ever sleeping takes a whole core, and steps take several times
as long; nothing in the training loop shows it.
May be confused with: other people's programs (starved); data workers that compute what the training needs; more
threads than cores in the trainer itself (oversubscribed).
How sure: supported when the trainer had less than half of the CPU time that it wanted over at least 8 s,
and its helpers had at least 40 % of the cores; a hypothesis where it had less than three quarters.
Cure: let the helper sleep between two looks, or wait for an event; start fewer of them.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import first_in_sources, roles
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cores_of
from holter.diagnosis.slow.step_times import anatomy_of
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import Threads
from holter.source.lines import calls_of
from holter.units import count, duration, share

CAUSE = "cpu.own-processes"
YIELDS_TO = ("thrash", "cpu.throttled")

_OBSERVED = 8.0
_SURE, _PERHAPS = 0.5, 0.75
_TAKEN = 0.4  # of the cores, by helpers
_DATA = 0.3  # of a step: a training that waits for data may well wait for these helpers
_STARTS = ("Popen", "Process", "Pool", "ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell")


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say how much of the CPU the trainer and its helpers had."""
    anatomy = anatomy_of(record)
    if anatomy is None or anatomy.of("data") > _DATA * max(anatomy.stepping, 1e-9):
        return None
    of, cores = roles(record), cores_of(record)
    had = waited = taken = seconds = 0.0
    busy: set[int] = set()
    for m, reading in record.readings(Threads):
        wall = reading.wall
        # Its start counts too: what takes the CPU from a training takes it from the imports before it.
        if not wall or wall < 1.0 or m > anatomy.end + 1.0 or reading.wait is None:
            continue
        seconds += wall
        for row in reading.rows:
            pid, cpu = row.pid, row.cpu or 0.0
            if pid == anatomy.pid:
                had, waited = had + cpu * wall, waited + (row.wait or 0.0) * wall
            elif pid is not None and of.get(pid, "other") == "other":
                taken += cpu * wall
                busy |= {pid} if cpu >= 0.1 else set()
    got = had / (had + waited) if had + waited > 0 else 1.0
    if seconds < _OBSERVED or got >= _PERHAPS or taken < _TAKEN * cores * seconds:
        return None
    grade: Grade = "supported" if got < _SURE else "hypothesis"
    many = f"{count(len(busy))} helper processes of the run's own take" if len(busy) > 1 else "a helper process takes"
    claim = (
        f"{many} {taken / seconds:.1f} of {cores:g} cores: the trainer was ready to run and had a core only "
        f"{share(got)} of that time"
    )
    evidence = (
        Evidence("run queue", f"the trainer ran {duration(had)} and waited {duration(waited)} for a core"),
        *anatomy.evidence,
    )
    cures = (
        Cure("let it sleep between two looks: time.sleep(1.0)", "", "equivalent"),
        Cure("start fewer of them, or give them the lowest priority: os.nice(19)"),
    )
    return Finding(CAUSE, grade, claim, evidence, first_in_sources(record, _starts_processes), cures)


def _starts_processes(lines: list[str]) -> int | None:
    return next((line for line, _name in calls_of(lines, _STARTS)), None)
