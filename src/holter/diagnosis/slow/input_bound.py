"""Which illness of the input a run has that waits for its data, told the same way for each of them."""

from __future__ import annotations

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cores_of, cpu_of
from holter.diagnosis.slow.data_wait import DataWait, data_wait_of
from holter.diagnosis.slow.input_cures import cures_of
from holter.finding import Culprit, Evidence, Finding
from holter.record.events.agent import AgentHello
from holter.units import count, duration

_STARTS = 0.3  # of the looks at the data stood in starting or ending workers
_HALF = 0.5
_ENOUGH = 8  # looks that are more than chance
_IDLE = 0.3  # of a core


@once
def input_illness(record: RecordLike) -> tuple[str, DataWait] | None:
    """Name the illness: `slow-transform`, `no-prefetch`, `slow-disk`, `slow-network` or `workers-restarted`."""
    found = data_wait_of(record)
    if found is None:
        return None
    if found.source == "loader" and found.workers and _restarted(record, found):
        return "workers-restarted", found
    if found.kind == "network":
        return "slow-network", found
    if found.kind == "disk":
        return "slow-disk", found
    nobody_ahead = found.source in ("own", "generator", "array") or found.workers == 0
    if found.source == "pydataset":
        nobody_ahead = found.workers <= 1
    # What could be hidden behind the computing, or only waits, wants someone who does it ahead.
    hidden = found.of_step < _HALF or found.kind == "waits" or (not found.kind and _idle(record, found))
    return ("no-prefetch" if nobody_ahead and hidden else "slow-transform"), found


def _idle(record: RecordLike, found: DataWait) -> bool:
    used = cpu_of(record, found.anatomy.pid, found.anatomy)
    return used is not None and used < _IDLE * (found.anatomy.end - found.anatomy.begin)


def _restarted(record: RecordLike, found: DataWait) -> bool:
    """Tell whether most of the wait is for workers that are started anew with each epoch."""
    if found.loader is not None and found.loader.persistent_workers:
        return False
    begun = _workers(record, found)
    if begun < 4 * found.workers:
        return False
    working = [look for look in found.seen if look.role == "worker" and look.line is not None]
    if len(working) >= _ENOUGH and len(working) > _HALF * len(found.seen):
        return False  # they were met at their work: it is what takes the time
    seen = [look for look in found.seen if look.role != "worker"]
    starts = sum(look.kind == "starts" for look in seen)
    lived = (found.anatomy.end - found.anatomy.begin) / max(1.0, begun / found.workers)
    return lived < 10.0 and (starts >= _STARTS * max(1, len(seen)) if seen else lived < 3.0)


def _workers(record: RecordLike, found: DataWait) -> int:
    return sum(event.role == "worker" and event.ppid in (found.anatomy.pid, None) for event in record.of(AgentHello))


def input_finding(record: RecordLike, detail: str, why: str) -> Finding | None:
    """Write the finding of one illness of the input; None where the run has another, or none."""
    illness = input_illness(record)
    if illness is None or illness[0] != detail:
        return None
    found = illness[1]
    claim = f"{found.words}: {why.format(**_words(record, found))}"
    evidence = (*found.evidence, Evidence("lost", f"{duration(found.seconds)} of {duration(found.anatomy.training)}"))
    lines = record.source(found.loader.file) if found.loader else []
    cures = cures_of(found, cores_of(record), lines)
    return Finding(f"input-bound.{detail}", found.grade, claim, evidence, culprit_of(found), cures)


def culprit_of(found: DataWait) -> Culprit | None:
    """Give the user's line that makes the data, else the loader's own."""
    if found.line is not None:
        return found.line.culprit
    return culprit_on(found.loader)


def _words(record: RecordLike, found: DataWait) -> dict[str, str]:
    line = found.line
    function = f"in {line.function}() " if line is not None and line.function != "<module>" else ""
    where = f", {function}at {line.short}" if line is not None else ""
    begun = _workers(record, found)
    workers = f"its {count(found.workers)} workers" if found.workers > 1 else "its one worker"
    several = found.source == "loader" and found.workers > 1
    who = {
        "loader": workers if found.workers else "the loader, which has no workers,",
        "tf.data": "the tf.data pipeline",
        "generator": "the generator",
        "pydataset": "the PyDataset",
        "own": "the script itself",
    }.get(found.source, "the input")
    return {
        "who": who,
        "s": "" if several else "s",
        "es": "" if several else "es",
        "where": where,
        "begun": count(begun),
        "times": count(round(begun / max(1, found.workers))),
    }
