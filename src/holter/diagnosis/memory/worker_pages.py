"""Pages that forked data workers copy: the run holds more, and no process of it is any larger.

A worker that is forked shares all that the trainer has. When it writes to a shared page, and be it to the reference
count of an object that it only reads, the kernel gives it a copy. The page was in its resident size before and is
after, so no process's size shows it: only the sum over the run does, as the container or the proportional sizes count
it, and the worker's own private memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.retained import Holder, holder_of
from holter.record.events.agent import AgentHello, Made
from holter.record.events.looks import RetainedObjects
from holter.record.events.recorder import KernelLine
from holter.record.events.timeline import Cgroup, Process, Processes, Proportional

_PYTHON = ("object", "text", "number")
_LEAST_OF_WORKER = 16e6
_LEAST = 64e6
# What each worker copies of the interpreter and its libraries, whatever the dataset is: PyTorch's alone are 80 MB.
_BESIDE = 150e6
_ROUGH = 2.0  # sizes of Python objects are estimated from a few of them
# How many values an optimizer keeps for each weight, at the most.
_PER_WEIGHT = 4
# Two readings of one sample are not taken at the same instant.
_ROUGHLY, _TWICE = 1.15, 2.0


@dataclass(frozen=True)
class WorkerPages:
    """What forked workers copied: how many of them, how much, since when, and what of the dataset they copied it from.

    `rise` is what the run had grown by in all at the last; `proved` is the part of the copies that the workers' own
    private memory shows; `before` is what the run held without them.
    `held` is the largest container of Python objects in the dataset, or an array that the workers write to.
    """

    workers: int
    grown: float
    rise: float
    proved: float
    since: float
    before: float
    held: Holder | None
    written: bool = False


@dataclass(frozen=True)
class _Counted:
    """One reading of all that the run holds, shared pages once, and of each process beside it."""

    m: float
    held: float
    sizes: dict[int, float]


# The most that was copied, what the run had grown by at the last, pids, since, before.
_Copies = tuple[float, float, frozenset[int], float, float]
_NONE: _Copies = (0.0, 0.0, frozenset(), 0.0, 0.0)


@once
def copied_pages(record: RecordLike, until: float | None = None, least: float = _LEAST) -> WorkerPages | None:
    """Give what the workers of one generation copied at most by a time; None where that is nothing to speak of."""
    workers = {pid for pid, role in roles(record).items() if role == "worker"}
    if not workers:
        return None
    private = _private_copies(record, workers, until)
    best = max((found for found in _counted_copies(record, workers, until)), key=lambda one: one[0], default=None)
    counted, rise, pids, since, before = best or _NONE
    own = {pid: copied for pid, copied in private.items() if not pids or pid in pids}
    proved = sum(own.values())
    grown = max(counted, proved)
    if grown < least:
        return None
    many = len(pids or own)
    known, held, written = _copied_from(record, workers, grown / many)
    return WorkerPages(many, grown, max(rise, grown), proved, since, before, held, written) if known else None


def _private_copies(record: RecordLike, workers: set[int], until: float | None) -> dict[int, float]:
    """Give by worker the private memory that its own growth does not explain, as the workers themselves read it."""
    first: dict[int, RetainedObjects] = {}
    last: dict[int, RetainedObjects] = {}
    for event in record.of(RetainedObjects):
        pid = event.pid
        if pid in workers and event.private is not None and (until is None or event.m <= until):
            first.setdefault(pid, event)
            last[pid] = event
    found = {}
    for pid, event in last.items():
        private = (event.private or 0.0) - (event.private_before or 0.0)
        resident = (event.rss or 0.0) - (first[pid].rss_before or 0.0)
        copied = private - max(0.0, resident)
        if copied >= max(_LEAST_OF_WORKER, 0.5 * private):
            found[pid] = copied
    return found


def _counted_copies(record: RecordLike, workers: set[int], until: float | None) -> list[_Copies]:
    """Give for each generation of workers what the run grew by beyond its processes' sizes.

    Workers that are made anew with each epoch take their copies with them when they go.
    """
    written = sum((e.weights or 0.0) for e in record.of(Made) if e.what == "optimizer" and e.made == 1) * _PER_WEIGHT
    inherited = _inherited(record)
    found: list[_Copies] = []
    start: _Counted | None = None
    before: _Counted | None = None
    bases: dict[int, float] = {}
    most, rise, last, seen = 0.0, 0.0, 0.0, frozenset[int]()
    for reading, highest in _with_highest(record):
        if until is not None and reading.m > until:
            break
        alive = frozenset(pid for pid in reading.sizes if pid in workers)
        if not alive or (seen and not alive & seen):
            if start is not None and most > 0:
                found.append((most, rise, seen, start.m, start.held))
            start, most, rise, last, seen, bases = None, 0.0, 0.0, 0.0, frozenset(), {}
        if alive:
            if start is None:
                start = before
            if start is not None:
                seen |= alive
                rise_now = reading.held - start.held
                copied = rise_now - _growth(reading.sizes, start, inherited, bases)
                # The trainer, too, copies what it writes to: weights and the optimizer's state, once for all workers.
                shared = sum(bases.get(pid, 0.0) for pid in alive)
                gone = before is not None and before.sizes.keys() - reading.sizes.keys()
                sure = rise_now - _growth(highest, start, inherited, bases) if highest else 0.0
                if gone or not shared or copied > _ROUGHLY * shared:
                    copied = sure = (
                        0.0  # a process has gone and its memory not yet, or it is more than there was to copy
                    )
                else:
                    rise = rise_now
                # The figures of one sample are not of the same instant: what only one of them shows may not be there,
                # but for what no size that any process had until the next one can explain.
                most, last = max(most, max(min(copied, _TWICE * last), sure) - written), copied
        before = reading
    if start is not None and most > 0:
        found.append((most, rise, seen, start.m, start.held))
    return found


def _with_highest(record: RecordLike) -> Iterator[tuple[_Counted, dict[int, float]]]:
    """Give each reading with the largest size that each process has had until the next; none where one is not known.

    A process that is gone by then is known if the kernel killed it, and said what it held.
    """
    killed = {e.pid: e.anon_rss for e in record.of(KernelLine) if e.oom and e.anon_rss}
    readings = _counted(record)
    highest: dict[int, float] = {}
    for reading, after in zip(readings, readings[1:] + readings[-1:], strict=True):
        then = {pid: after.sizes.get(pid, killed.get(pid)) for pid in reading.sizes}
        for pid, held in reading.sizes.items():
            highest[pid] = max(highest.get(pid, 0.0), held, then[pid] or 0.0)
        known = after is not reading and None not in then.values()
        yield reading, {pid: highest[pid] for pid in reading.sizes} if known else {}


def _growth(sizes: dict[int, float], start: _Counted, inherited: dict[int, float], bases: dict[int, float]) -> float:
    """Add up what processes grew by themselves; `bases` gets what each worker had from the trainer at its fork."""
    largest = max((held for pid, held in sizes.items() if pid not in inherited), default=0.0)
    total = 0.0
    for pid, held in sizes.items():
        if pid in start.sizes:
            total += held - start.sizes[pid]
            continue
        if pid not in bases:
            bases[pid] = min(inherited.get(pid, 0.0), held, largest)  # any other process brought all that it has
        total += held - bases[pid]
    return total


@once
def _counted(record: RecordLike) -> list[_Counted]:
    """Give the readings that count a shared page once: of the container, else the proportional sizes of the tree."""
    beside = dict(record.readings(Processes))
    found = [
        _Counted(m, reading.anon + (reading.swap_usage or 0.0), _sizes(beside[m].rows, _anonymous))
        for m, reading in record.readings(Cgroup)
        if reading.anon and reading.limit and m in beside
    ]
    if found:
        return found
    return [
        _Counted(m, reading.pss, {row.pid: row.rss or 0.0 for row in reading.rows if row.pid is not None})
        for m, reading in record.readings(Proportional)
        if reading.pss
    ]


def _sizes(rows: tuple[Process, ...], figure: Callable[[Process], float]) -> dict[int, float]:
    return {row.pid: figure(row) for row in rows if row.pid is not None and row.rss}


def _anonymous(row: Process) -> float:
    # Pages of files and of shared memory are no part of the container's anonymous memory.
    return max(0.0, (row.rss or 0.0) - (row.shared or 0.0)) + (row.swap or 0.0)


def _inherited(record: RecordLike) -> dict[int, float]:
    return {e.pid: e.inherited for e in record.of(AgentHello) if e.pid is not None and e.inherited}


@once
def taken_by_workers(record: RecordLike, until: float | None = None) -> tuple[int, float]:
    """Give the number of forked workers and what they hold beyond all that they had from the trainer, at most."""
    inherited = _inherited(record)
    most = (0, 0.0)
    for m, reading in record.readings(Processes) if inherited else ():
        if until is None or m <= until:
            own = [max(0.0, _anonymous(row) - inherited[row.pid]) for row in reading.rows if row.pid in inherited]
            most = max(most, (len(own), sum(own)), key=lambda one: one[1])
    return most


def _copied_from(record: RecordLike, workers: set[int], each: float) -> tuple[bool, Holder | None, bool]:
    """Tell whether copies of this size can be of the dataset, of what in it, and whether that is being written to."""
    objects, arrays, looked = _in_dataset(record, workers)
    if looked and _ROUGH * sum(one.held for one in objects) >= 0.5 * each:
        return True, max(objects, key=lambda one: one.held), False
    # Every worker copies pages of the interpreter and of libraries, too: only what is more than those is a dataset's.
    inherited = median(_inherited(record).values() or (0.0,))
    beside = max(_BESIDE, inherited - sum(one.held for one in arrays))
    if not looked:
        return each >= max(_BESIDE, 0.5 * inherited), None, False
    return (True, arrays[0], True) if arrays and each >= 0.8 * beside else (False, None, False)


def _in_dataset(record: RecordLike, workers: set[int]) -> tuple[list[Holder], list[Holder], bool]:
    """Give the containers of Python objects and the arrays that lie in the dataset, and whether a worker looked."""
    found: dict[tuple[str, str], Holder] = {}
    looked = False
    for event in record.of(RetainedObjects):
        if event.pid not in workers:
            continue
        looked = True
        for row in event.rows:
            holder = holder_of(event, row)
            if holder is not None and holder.file and holder.held > 0:
                known = found.get((holder.name, holder.file))
                found[holder.name, holder.file] = max(known or holder, holder, key=lambda one: one.held)
    ranked = sorted(found.values(), key=lambda one: -one.held)
    objects = [one for one in ranked if one.kind in _PYTHON and max(one.length, one.bound) >= 1000]
    return objects, [one for one in ranked if one.kind not in _PYTHON], looked
