"""How much of the CPU the run had while it trained, against what it wanted and what there is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.evidence import latest, series
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import P, RecordLike
from holter.diagnosis.slow.step_times import Anatomy, anatomy_of
from holter.record.events.timeline import Cgroup, Processes, Threads


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
    cpus = float(record.facts.cpus or 1)
    limit = latest(record, Cgroup, lambda reading: reading.cpu_limit is not None).cpu_limit
    return min(cpus, limit) if limit else cpus


@once
def cpu_share_of(record: RecordLike) -> CpuShare | None:
    """Read the run queue of the run's threads while it trained; None where the kernel does not say."""
    anatomy = anatomy_of(record)
    if anatomy is None:
        return None
    had = waited = seconds = 0.0
    wanting = []
    for m, reading in record.readings(Threads):
        wall, cpu, wait = reading.wall, reading.cpu, reading.wait
        inside = anatomy.begin <= m - (wall or 0.0) / 2 and m <= anatomy.end + 1.0
        if not inside or not wall or wall < 1.0 or cpu is None or wait is None:
            continue
        had, waited, seconds = had + cpu * wall, waited + wait * wall, seconds + wall
        wanting.append(reading.wanting or 0.0)
    if not wanting:
        return None
    # Threads that begin and end between two readings are in neither; what their processes used is known.
    used = rise_of(record, Processes, lambda reading: reading.cpu_s, anatomy) or 0.0
    used /= max(anatomy.end - anatomy.begin, 1e-9)
    return CpuShare(cores_of(record), max(had / seconds, used), waited / seconds, seconds, median(wanting))


def cpu_of(record: RecordLike, pid: int, anatomy: Anatomy) -> float | None:
    """Give the CPU seconds that one process used while the run trained."""
    known = [
        (m, used)
        for m, reading in record.readings(Processes)
        if anatomy.begin - 1.0 <= m <= anatomy.end + 1.0
        for row in reading.rows
        if row.pid == pid and (used := row.cpu_s) is not None
    ]
    if len(known) < 2 or known[-1][0] - known[0][0] < 0.5 * (anatomy.end - anatomy.begin):
        return None
    # The readings lie a little apart from the steps' own ends.
    rate = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
    return max(0.0, rate * (anatomy.end - anatomy.begin))


def cpu_of_threads(record: RecordLike, tids: Collection[int], anatomy: Anatomy) -> float | None:
    """Give the CPU seconds that some threads used while the run trained, as far as they are among the busiest."""
    used = seconds = 0.0
    for m, reading in record.readings(Threads):
        wall = reading.wall
        if not wall or not (anatomy.begin <= m - wall / 2 and m <= anatomy.end + 1.0):
            continue
        seconds += wall
        used += wall * sum(row.cpu or 0.0 for row in reading.rows if row.tid in tids)
    return used / seconds * (anatomy.end - anatomy.begin) if seconds else None


def rise_of(record: RecordLike, probe: type[P], counter: Callable[[P], float | None], anatomy: Anatomy) -> float | None:
    """Give how much a counter of a probe grew while the run trained."""
    read = series(record, probe, counter)
    known = [value for m, value in read if anatomy.begin - 1.0 <= m <= anatomy.end + 1.0]
    return max(0.0, known[-1] - known[0]) if len(known) >= 2 else None
