"""What this process itself holds in memory, read cheaply: once a second is the most that anyone asks."""

import sys
from time import thread_time as clock  # what others take of the core is not our cost

YOUNG_PAUSE = 0.25  # seconds between two looks soon after a fork
_AT_ONCE = 0.04  # seconds of looks at private pages that are allowed before their share of the time is
_SHARE = 0.003
_COST = 12e-12  # seconds for each resident byte: the kernel walks its page tables
_FIRST_CENSUS_BYTES = 16 << 20
_MORE = 6 << 20
_LINUX = sys.platform.startswith("linux")
_WANTED = (b"VmRSS", b"VmSwap")


def own_memory():
    """Resident and swapped bytes of this process; 0 where it can't be read."""
    if not _LINUX:
        return _peak()
    held = 0
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(_WANTED):
                held += int(line.split()[1]) * 1024
    return held


def _peak():
    """The highest so far, where the present figure is not to be had: growth shows in it all the same."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def private_memory():
    """Bytes that no other process shares, after a fork those that were written to; None where it can't be read.

    The kernel walks the page tables for it, some milliseconds for each gigabyte.
    """
    if not _LINUX:
        return None
    held = 0
    with open("/proc/self/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith((b"Private_Clean", b"Private_Dirty", b"Swap:")):
                held += int(line.split()[1]) * 1024
    return held


class PrivatePages:
    """What a forked worker has written to since the fork: looked at soon after it, then as often as its cost allows."""

    def __init__(self, now, early):
        self.began = now
        self.early = early  # one of the first workers, of which no cost is known yet
        self.due = self.spent = 0.0
        self.now = 0
        self.last = _FIRST_CENSUS_BYTES  # at the last census: a little is written by every worker

    def grew(self, now, resident):
        """Whether they have become many more since the last census."""
        if now >= self.due:
            self._look(now, resident)
        return self.now - self.last >= max(_MORE, 0.05 * self.last)

    def report(self):
        self.last = self.now
        return self.now

    def _look(self, now, resident):
        expected = _COST * resident
        at_once = self.early and expected <= _AT_ONCE
        if not self.spent and not at_once and now - self.began < expected / _SHARE:
            return
        begun = clock()
        private = private_memory()
        if private is None:
            self.due = float("inf")
            return
        cost = clock() - begun
        self.now, self.spent = private, self.spent + cost
        pause = max(1.0, cost / _SHARE)
        if self.early and self.spent + cost <= _AT_ONCE:
            pause = min(pause, YOUNG_PAUSE + now - self.began)
        self.due = now + pause


def resident_share(address, length):
    """The share of a range of addresses that has been written to or read, from some of its pages; None if unknown."""
    if not _LINUX or length < 1 << 20:
        return None
    page, looks = 4096, 128
    first, last = -(-address // page), (address + length) // page
    if last - first < looks:
        return None
    there = 0
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        for n in range(looks):
            file.seek((first + (last - first - 1) * n // (looks - 1)) * 8)
            entry = file.read(8)
            there += entry[7] >> 6 != 0  # present, or swapped out
    return there / looks
