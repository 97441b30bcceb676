"""How much of the CPU the run had while it trained, against what it wanted and what there is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.fields import number, rows, whole
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.step_times import Anatomy, anatomy_of


@dataclass(frozen=True)
class CpuShare:
    """Cores that the run's threads had and waited for, on average while it trained, over so many seconds."""

    cores: float
    had: float
    waited: float
    seconds: float
    wanting: float  # threads that computed or wanted to, in the middle

    @property
    def got(self) -> float:
        """Give the part of the wanted CPU time that the run had."""
        return self.had / (self.had + self.waited) if self.had + self.waited > 0 else 1.0


@once
def cores_of(record: RecordLike) -> float:
    """Give the cores that the run may use: the machine's, or what its container is allowed."""
    cpus = number(record.meta, "cpus") or 1.0
    limit = number(latest(record, "cgroup", lambda reading: number(reading, "cpu_limit") is not None), "cpu_limit")
    return min(cpus, limit) if limit else cpus


@once
def cpu_share_of(record: RecordLike) -> CpuShare | None:
    """Read the run queue of the run's threads while it trained; None where the kernel does not say."""
    anatomy = anatomy_of(record)
    if anatomy is None:
        return None
    had = waited = seconds = 0.0
    wanting = []
    for m, reading in record.samples("threads"):
        wall, cpu, wait = number(reading, "wall"), number(reading, "cpu"), number(reading, "wait")
        inside = anatomy.begin <= m - (wall or 0.0) / 2 and m <= anatomy.end + 1.0
        if not inside or not wall or wall < 1.0 or cpu is None or wait is None:
            continue
        had, waited, seconds = had + cpu * wall, waited + wait * wall, seconds + wall
        wanting.append(number(reading, "wanting") or 0.0)
    if not wanting:
        return None
    # Threads that begin and end between two readings are in neither; what their processes used is known.
    used = (rise_of(record, "processes", "cpu_s", anatomy) or 0.0) / max(anatomy.end - anatomy.begin, 1e-9)
    return CpuShare(cores_of(record), max(had / seconds, used), waited / seconds, seconds, median(wanting))


def cpu_of(record: RecordLike, pid: int, anatomy: Anatomy) -> float | None:
    """Give the CPU seconds that one process used while the run trained."""
    known = [
        (m, used)
        for m, reading in record.samples("processes")
        if anatomy.begin - 1.0 <= m <= anatomy.end + 1.0
        for row in rows(reading, "list")
        if whole(row, "pid") == pid and (used := number(row, "cpu_s")) is not None
    ]
    if len(known) < 2 or known[-1][0] - known[0][0] < 0.5 * (anatomy.end - anatomy.begin):
        return None
    # The readings lie a little apart from the steps' own ends.
    rate = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
    return max(0.0, rate * (anatomy.end - anatomy.begin))


def cpu_of_threads(record: RecordLike, tids: Collection[int], anatomy: Anatomy) -> float | None:
    """Give the CPU seconds that some threads used while the run trained, as far as they are among the busiest."""
    used = seconds = 0.0
    for m, reading in record.samples("threads"):
        wall = number(reading, "wall")
        if not wall or not (anatomy.begin <= m - wall / 2 and m <= anatomy.end + 1.0):
            continue
        seconds += wall
        used += wall * sum(number(row, "cpu") or 0.0 for row in rows(reading, "list") if whole(row, "tid") in tids)
    return used / seconds * (anatomy.end - anatomy.begin) if seconds else None


def rise_of(record: RecordLike, probe: str, field: str, anatomy: Anatomy) -> float | None:
    """Give how much a counter of a probe grew while the run trained."""
    known = [
        value
        for m, reading in record.samples(probe)
        if anatomy.begin - 1.0 <= m <= anatomy.end + 1.0 and (value := number(reading, field)) is not None
    ]
    return max(0.0, known[-1] - known[0]) if len(known) >= 2 else None
