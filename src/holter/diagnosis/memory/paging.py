"""Pages that go out and come back while the run trains: how many, for how long, and what that costs.

Memory in swap is no illness, and neither is a page cache that is thrown out: what counts is that the same pages are
needed again and again, and that the training waits for them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from holter.diagnosis.core.evidence import frameworks_on, on_macos, series
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of
from holter.record.events.timeline import Apple, Cgroup, Pressure, Processes, StepWindow, VirtualMemory

SWAP, RECLAIM = "swap", "reclaim"

_BACK = 500.0  # pages a second from swap: less is old memory that somebody looked at
_BACK_FILE = 1000.0  # pages a second of files that had been in memory before
_FAULTS = 50.0  # major faults a second of the run's own: it is this run that waits, not a neighbour
_FILE_FAULTS = 20.0
_WAITED = 0.08  # of the time somebody waited for memory, for pages of files
_COMPUTES = 0.5  # cores at the user's own work: a trainer that computes more than that is not held up by its pages
_SHORTEST = 6.0  # seconds
_DEAR = 0.1  # of that time somebody waited for memory
_SHARE = 0.5  # of the training; less will do where it goes on to the end
_STRETCH = 0.6  # seconds: readings closer together than this are one
_PRESSED = 2  # macOS: 1 is normal, 2 a warning, 4 critical


@dataclass(frozen=True)
class Stretch:
    """The time between two readings: what came back, who waited, and what was computed meanwhile."""

    begin: float
    end: float
    swapped_in: float = 0.0  # bytes a second
    refetched: float = 0.0
    faults: float = 0.0
    waited: float | None = None
    computing: float | None = None
    in_kernel: float | None = None
    kind: str = ""

    @property
    def lasts(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Paging:
    """A run that moves pages instead of training: from where, how long of how much, and the price."""

    kind: str
    seconds: float
    of: float
    begin: float
    end: float
    rate: float
    waited: float | None
    computing: float | None
    in_kernel: float | None
    slow: float | None  # seconds a step, while pages moved
    quick: float | None  # and while they did not
    still: bool  # at the end of what is known
    unified: bool = False  # CPU and GPU share one pool: an idle CPU says nothing there

    @property
    def slowdown(self) -> float | None:
        return self.slow / self.quick if self.slow and self.quick else None


class _Counter:
    """The last known value of a counter at any moment."""

    def __init__(self, points: list[tuple[float, float]]) -> None:
        self._times = [m for m, _ in points]
        self._values = [value for _, value in points]

    def rate(self, begin: float, end: float) -> float | None:
        first, last = bisect_right(self._times, begin) - 1, bisect_right(self._times, end) - 1
        if first < 0 or last <= first or self._times[last] - self._times[first] <= 0:
            return None
        return max(0.0, self._values[last] - self._values[first]) / (self._times[last] - self._times[first])


@once
def stretches(record: RecordLike) -> tuple[Stretch, ...]:
    """Cut the run into the times between readings, and say of each whether pages came back in it."""
    page = 16384.0 if on_macos(record) else 4096.0
    anon = series(record, Cgroup, lambda r: r.refault_anon)
    back = _Counter(anon or series(record, VirtualMemory, lambda r: r.pswpin))
    files = _Counter(series(record, Cgroup, lambda r: r.refault_file))
    faults = _Counter(series(record, Processes, lambda r: r.majflt))
    cpu = _Counter(series(record, Processes, lambda r: r.cpu_s))
    kernel = _Counter(series(record, Processes, lambda r: r.sys_s))
    own_waits = series(record, Cgroup, lambda r: r.some_us)
    waits = _Counter(own_waits or series(record, Pressure, lambda r: r.memory.some_us))
    levels = [(m, r.pressure_level) for m, r in record.readings(Apple)]
    grows = _Counter(series(record, Apple, lambda r: r.swap_used))
    found = []
    for begin, end in pairwise(_moments(record)):
        rate, seen, waited = back.rate(begin, end), faults.rate(begin, end), waits.rate(begin, end)
        used, system = cpu.rate(begin, end), kernel.rate(begin, end)
        one = Stretch(
            begin,
            end,
            swapped_in=(rate or 0.0) * page,
            refetched=(files.rate(begin, end) or 0.0) * page,
            faults=seen or 0.0,
            waited=waited / 1e6 if waited is not None else None,
            computing=max(0.0, used - system) if used is not None and system is not None else used,
            in_kernel=system,
        )
        pressed = any(level is not None and level >= _PRESSED for m, level in levels if begin < m <= end)
        if levels:
            found.append(_named_unified(one, pressed, grows.rate(begin, end) or 0.0))
        else:
            found.append(_named(one, page))
    return tuple(found)


def _named_unified(one: Stretch, pressed: bool, grows: float) -> Stretch:
    """macOS compresses and swaps early and on purpose: that is trouble only while it says that it is pressed."""
    moves = max(one.swapped_in, grows)
    return replace(one, swapped_in=moves, kind=SWAP) if pressed and moves >= _BACK * 4096 else one


def _named(one: Stretch, page: float) -> Stretch:
    kind = ""
    if one.swapped_in >= _BACK * page and one.faults >= _FAULTS:
        kind = SWAP
    elif (
        one.refetched >= _BACK_FILE * page
        and one.faults >= _FILE_FAULTS
        and (one.waited or 0.0) >= _WAITED
        and (one.computing or 0.0) < _COMPUTES
    ):
        kind = RECLAIM
    return replace(one, kind=kind) if kind else one


def _moments(record: RecordLike) -> list[float]:
    """Give the moments of the readings, at least the better part of a second apart."""
    kept: list[float] = []
    for m, _ in record.readings(Processes):
        if not kept or m - kept[-1] >= _STRETCH:
            kept.append(m)
    return kept


@once
def paging_of(record: RecordLike) -> Paging | None:
    """Say that pages kept coming back while the run trained; None when they did not, or only for a moment."""
    window = _trained(record)
    if window is None:
        return None
    begin, end, stepped = window
    within = [one for one in stretches(record) if one.begin >= begin - 1 and one.end <= end + 1]
    moving = [one for one in within if one.kind]
    of = max(end - begin, 1e-3)
    seconds = min(of, sum(one.lasts for one in moving))
    late = [one for one in within if one.end > end - min(30.0, max(8.0, 0.25 * of))]
    still = sum(one.lasts for one in late if one.kind) >= 0.6 * sum(one.lasts for one in late) > 0
    # Without steps nobody knows what was loading and what was training: it has to be nearly all of a longer time.
    least, share = (_SHORTEST, _SHARE) if stepped else (15.0, 0.6)
    lasting = seconds >= share * of or (still and stepped and (seconds >= 20 or seconds >= 0.5 * share * of))
    # A part of every step, such as its backward: less than half of the time, and dear enough to be felt.
    dear = (
        stepped and seconds >= max(10.0, 0.3 * of) and (_mean(moving, [one.waited for one in moving]) or 0.0) >= _DEAR
    )
    if seconds < least or not (lasting or dear):
        return None
    kinds = {kind: sum(one.lasts for one in moving if one.kind == kind) for kind in (SWAP, RECLAIM)}
    kind = max(kinds, key=lambda name: kinds[name])
    chosen = [one for one in moving if one.kind == kind]
    slow, quick = _pace(record, moving)
    return Paging(
        kind=kind,
        seconds=seconds,
        of=of,
        begin=chosen[0].begin,
        end=chosen[-1].end,
        rate=_mean(chosen, [one.swapped_in if kind == SWAP else one.refetched for one in chosen]) or 0.0,
        waited=_mean(chosen, [one.waited for one in chosen]),
        computing=_mean(chosen, [one.computing for one in chosen]),
        in_kernel=_mean(chosen, [one.in_kernel for one in chosen]),
        slow=slow,
        quick=quick,
        still=still,
        unified=bool(record.readings(Apple)),
    )


def paged_during(record: RecordLike, begin: float, end: float) -> bool:
    """Tell whether pages came back for most of a time: what stood still then stood in the disk's queue."""
    within = [one for one in stretches(record) if one.end > begin and one.begin < end]
    return bool(within) and sum(one.lasts for one in within if one.kind) >= 0.5 * sum(one.lasts for one in within)


def _trained(record: RecordLike) -> tuple[float, float, bool] | None:
    """Give the time from the first step to the last, or to the end of a run that did not come to its own."""
    progress, exited = progress_of(record), exit_of(record)
    known = _moments(record)
    if not known:
        return None
    end = exited.m if exited is not None and exited.m is not None else known[-1]
    if progress.first_step_m is None:
        # A run whose steps are seen and has made none is still loading, unless it never came out of it.
        return (known[0], end, False) if exited is None or exited.code != 0 or not frameworks_on(record) else None
    finished = exited is not None and exited.code == 0
    last = progress.last_step_m if finished and progress.last_step_m else max(end, progress.last_step_m or 0.0)
    return progress.first_step_m, last, True


def _pace(record: RecordLike, moving: list[Stretch]) -> tuple[float | None, float | None]:
    """Give the usual step while pages moved, and while they did not."""
    pid = progress_of(record).pid
    slow: list[float] = []
    quick: list[float] = []
    for line in record.of(StepWindow):
        n, took, first = line.n, line.sum, line.first
        if line.pid != pid or not n or not took or (first or 0) <= 2:
            continue
        end = line.m
        held = any(one.begin < end and one.end > end - took for one in moving)
        (slow if held else quick).append(took / n)
    return (median(slow) if slow else None), (median(quick) if len(quick) >= 2 else None)


def _mean(chosen: list[Stretch], values: list[float | None]) -> float | None:
    known = [(one.lasts, value) for one, value in zip(chosen, values, strict=True) if value is not None]
    total = sum(lasts for lasts, _ in known)
    return sum(lasts * value for lasts, value in known) / total if total else None
