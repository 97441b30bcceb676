"""The kernel's OOM killer: did it take a process of this run, and which."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holter.diagnosis.core.evidence import Rise, last_processes, last_rise, roles, tree_pids, wall_clock
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import Exit, child_death
from holter.diagnosis.memory.memory import memory_curve
from holter.finding import Evidence
from holter.record.events.recorder import KernelLine, ProcessGone, Spawned
from holter.record.events.timeline import Cgroup, MachineMemory, Process, VirtualMemory
from holter.units import share, size

# A launcher or a loader notices its child's death late; within this span the two belong together.
TOGETHER = 60.0
# From this share of the limit on, a rise of the machine-wide counter is taken for this run's own.
NEAR = 0.9


@dataclass(frozen=True)
class OomKill:
    """A process of the run that the kernel killed for lack of memory, and how that is known."""

    scope: str
    at: float
    pid: int | None = None
    role: str = ""
    name: str = ""
    held: float | None = None
    rise: Rise | None = None
    text: str = ""

    @property
    def who(self) -> str:
        """Say who was the victim, as the subject of a sentence."""
        words = {"trainer": "the trainer", "worker": "a data worker"}.get(self.role, "a process of the run")
        known = f"{words} (pid {self.pid})" if self.pid else words
        return f"{known}, which held {size(self.held)}" if self.held else known


@once
def oom_kill_of(record: RecordLike, exited: Exit | None) -> OomKill | None:
    """Find the last OOM kill in the run's tree; a machine-wide count alone is not one."""
    end = exited.m if exited else None
    named = _named_by_kernel(record)
    if named is not None:
        return _with_victim(record, named)
    rise = _kills_in_container(record)
    if rise is not None:
        return _with_victim(record, OomKill("cgroup", rise.until, _victim(record, rise, exited), rise=rise))
    rise = last_rise((m, reading.oom_kill, "") for m, reading in record.readings(VirtualMemory))
    if rise is None or end is None or not rise.since - 2 <= end <= rise.until + TOGETHER:
        return None
    return (
        _with_victim(record, OomKill("machine", rise.until, _victim(record, rise, exited), rise=rise))
        if _full(record)
        else None
    )


def _kills_in_container(record: RecordLike) -> Rise | None:
    return last_rise((m, reading.oom_kill, reading.path) for m, reading in record.readings(Cgroup))


def _named_by_kernel(record: RecordLike) -> OomKill | None:
    oom_lines = [event for event in record.of(KernelLine) if event.oom]
    tree = tree_pids(record) if oom_lines else set()
    lines = [event for event in oom_lines if event.pid in tree]
    if not lines:
        return None
    # The kernel writes two lines for one kill: the choice, with its constraint, then the kill, with the memory.
    pid = lines[-1].pid
    same = [event for event in lines if event.pid == pid]
    rise = _kills_in_container(record)
    memcg = rise is not None or any("memcg" in event.constraint.lower() for event in same)
    held = max((event.anon_rss or 0.0 for event in same), default=0.0)
    text = next((event.text for event in same[::-1] if event.anon_rss), same[-1].text)
    at, scope = same[-1].m, "cgroup" if memcg else "machine"
    return OomKill(scope, at, pid, held=held or None, rise=rise, text=text)


def explains(kill: OomKill, exited: Exit) -> bool:
    """Tell whether an OOM kill and the end of the run belong together in time."""
    if exited.m is None:
        return False
    since = kill.rise.since if kill.rise else kill.at
    return since - 2 <= exited.m <= kill.at + TOGETHER


def _full(record: RecordLike) -> bool:
    curve = memory_curve(record)
    if curve is not None and curve.kind.startswith("ram") and curve.nearness >= NEAR:
        return True
    late = record.readings(MachineMemory)[-10:]
    free_and_total = [(r.available, r.total) for _, r in late]
    return any(free is not None and total and free < (1 - NEAR) * total for free, total in free_and_total)


def _victim(record: RecordLike, rise: Rise, exited: Exit | None) -> int | None:
    death = child_death(record)
    if death is not None and death[0] == "SIGKILL" and death[1]:
        return death[1]
    if exited is not None and exited.signal == "SIGKILL" and not exited.child:
        first = next((event.pid for event in record.of(Spawned)), None)
        if first:
            return first
    return next((e.pid for e in record.of(ProcessGone) if rise.since - 1 <= e.m <= rise.until + 3), None)


def _with_victim(record: RecordLike, kill: OomKill) -> OomKill:
    seen = [row for row in last_processes(record, kill.at) if row.pid == kill.pid]
    held = kill.held or next((row.rss for row in seen if row.rss), None)
    name = next((row.name for row in seen), "")
    role = roles(record).get(kill.pid or 0, "")
    return replace(kill, role=role, name=name, held=held)


def oom_evidence(record: RecordLike, kill: OomKill) -> tuple[Evidence, ...]:
    """Give the proof of an OOM kill: the counter, the kernel's line, the limit, each process's memory."""
    when, found = wall_clock(record, kill.at), []
    where = "in this container" if kill.scope == "cgroup" else "on this machine"
    if kill.rise:
        found.append(Evidence("kernel", f"oom_kill {kill.rise.before} → {kill.rise.after} {where}", when))
    if kill.text:
        held = f", which held {size(kill.held)}" if kill.held else ""
        name = f" ({kill.name})" if kill.name else ""
        found.append(Evidence("kernel log", f"out of memory: Killed process {kill.pid}{name}{held}", when))
    curve = memory_curve(record)
    if curve is not None and curve.limit:
        peak = max(curve.peak, _high_water(record) if kill.scope == "cgroup" else 0.0)
        of = f"{size(peak)} of {size(curve.limit)}, {share(peak / curve.limit)} of {curve.limit_words}"
        found.append(Evidence("peak memory", of))
    found.extend(tree_evidence(record, kill.at, kill.pid))
    return tuple(found)


def _high_water(record: RecordLike) -> float:
    """The kernel's own highest figure, where it rose in this run: a jump to the limit may lie between two readings."""
    marks = [reading.peak for _, reading in record.readings(Cgroup)]
    known = [mark for mark in marks if mark is not None]
    return known[-1] if known and known[-1] > known[0] else 0.0


def _held(row: Process) -> str:
    # Pages of files and of shared memory are in the resident size of every process that maps them.
    rss, shared = row.rss or 0.0, row.shared or 0.0
    if not 0 < shared < rss:
        return size(rss)
    return f"{size(rss - shared)}" + (f" and {size(shared)} shared" if shared > 0.05 * rss else "")


def tree_evidence(record: RecordLike, before: float | None, victim: int | None = None) -> list[Evidence]:
    """Give the memory of each process of the tree as last read, the largest five and the rest as one."""
    listed, role_of = last_processes(record, before), roles(record)
    found = []
    for row in listed[:5]:
        pid = row.pid
        words = f"pid {pid} {role_of.get(pid or 0) or row.name}".rstrip()
        killed = ", killed" if pid == victim else ""
        found.append(Evidence("process", f"{words}: {_held(row)}{killed}"))
    rest = listed[5:]
    if rest:
        held = sum(row.rss or 0 for row in rest)
        found.append(Evidence("process", f"{len(rest)} others: {size(held)}"))
    return found
