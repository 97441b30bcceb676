"""The limits that the command was started under."""

from __future__ import annotations

from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_whole, text

_FIELDS = {
    "Max open files": "nofile",
    "Max address space": "as",
    "Max data size": "data",
    "Max processes": "nproc",
    "Max core file size": "core",
}
_NAME_WIDTH = 26  # names hold spaces, so the columns are told apart by width


def parse_limits(raw: bytes) -> dict[str, int]:
    """The soft limits of /proc/<pid>/limits; those that are unlimited are left out."""
    found = {}
    for line in text(raw).splitlines():
        name = line[:_NAME_WIDTH].strip()
        values = line[_NAME_WIDTH:].split()
        if name in _FIELDS and values and values[0].isdecimal():
            found[_FIELDS[name]] = int(values[0])
    return found


class Rlimits:
    """Soft resource limits of the command's own process."""

    name = "rlimits"
    every = 5.0
    urgent = False

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def read(self, tree: Tree) -> Reading:
        try:
            return parse_limits(read_whole(f"{self._proc}/{tree.root}/limits"))
        except OSError:
            return {}  # the command has just ended


PROBES = [Rlimits]
