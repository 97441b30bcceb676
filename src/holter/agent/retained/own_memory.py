"""What this process itself holds in memory, read cheaply: once a second is the most that anyone asks."""

import sys

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
