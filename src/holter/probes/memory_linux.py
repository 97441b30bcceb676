"""The machine's memory and swap."""

from __future__ import annotations

from holter.errors import NoData
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_whole

_FIELDS = {
    b"MemTotal": "total",
    b"MemAvailable": "available",
    b"MemFree": "free",
    b"Shmem": "shmem",
    b"SwapTotal": "swap_total",
    b"SwapFree": "swap_free",
}


def parse_meminfo(raw: bytes) -> dict[str, int]:
    """The fields of /proc/meminfo that we keep, in bytes."""
    found = {}
    for line in raw.split(b"\n"):
        name, _, value = line.partition(b":")
        if name in _FIELDS:
            try:
                found[_FIELDS[name]] = int(value.split()[0]) * 1024
            except (ValueError, IndexError):
                continue
    return found


class Memory:
    """What the whole machine has left, from /proc/meminfo."""

    name = "memory"
    every = 1.0
    urgent = True

    def __init__(self, proc: str = "/proc") -> None:
        self._path = f"{proc}/meminfo"

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        try:
            return parse_meminfo(read_whole(self._path))
        except OSError as error:
            raise NoData(f"{self._path} could not be read: {error.strerror}") from error


PROBES = [Memory]
