"""Who in the run's tree grew: the trainer, the data workers, or another process."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import Points
from holter.record.events.timeline import Processes

_GROUPS = {"trainer": "trainer", "worker": "workers"}
# A part of the tree that carries this share of the growth is where it happens.
_MAIN_SHARE = 0.6


@dataclass(frozen=True)
class Grower:
    """A part of the tree, its processes, its private memory over time, and by how much that grew."""

    where: str
    pids: tuple[int, ...]
    points: Points
    rise: float


@once
def private_memory(record: RecordLike, trainer: int | None) -> dict[str, tuple[tuple[int, ...], Points]]:
    """Give pids and private memory (resident, not shared, and swapped out) over time of each part of the tree."""
    role_of = roles(record)
    curves: dict[str, list[tuple[float, float]]] = {}
    members: dict[str, dict[int, None]] = {}
    for m, reading in record.readings(Processes):
        sums: dict[str, float] = {}
        for row in reading.rows:
            pid, held = row.pid, row.rss
            if pid is None or held is None:
                continue
            role = row.role or role_of.get(pid, "")
            group = "trainer" if pid == trainer else _GROUPS.get(role, "other")
            private = max(0.0, held - (row.shared or 0.0)) + (row.swap or 0.0)
            sums[group] = sums.get(group, 0.0) + private
            members.setdefault(group, {})[pid] = None
        for group, total in sums.items():
            curves.setdefault(group, []).append((m, total))
    return {group: (tuple(members[group]), tuple(points)) for group, points in curves.items()}


def growers(record: RecordLike, trainer: int | None, since: float, until: float) -> list[Grower]:
    """Give the parts of the tree by how much each grew between two times, the one that grew most first."""
    found = []
    for group, (pids, points) in private_memory(record, trainer).items():
        within = tuple(point for point in points if since <= point[0] <= until)
        if len(within) >= 2:
            few = max(1, len(within) // 10)
            rise = median(v for _, v in within[-few:]) - median(v for _, v in within[:few])
            found.append(Grower(group, pids, within, rise))
    return sorted(found, key=lambda grower: -grower.rise)


def who_grew(found: list[Grower], rise: float) -> Grower | None:
    """Name the part that carries most of a rise; workers where nothing resident grew, for pages copied on write.

    A forked worker's pages count as resident from the start: when it writes to them the kernel copies them, and only
    the container's usage shows it.
    """
    if not found:
        return None
    top, grown = found[0], sum(max(0.0, one.rise) for one in found)
    if grown < 0.4 * rise:
        return next((one for one in found if one.where == "workers"), None)
    return top if top.rise >= _MAIN_SHARE * grown else None
