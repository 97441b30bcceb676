"""The machine's paging: what came back from swap, and kills for lack of memory."""

from __future__ import annotations

from holter.errors import NoData
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_whole

_FIELDS = (b"pswpin", b"oom_kill")


def parse_vmstat(raw: bytes) -> dict[str, int]:
    """The counters of /proc/vmstat that we keep; pages, and events."""
    found = {}
    for line in raw.split(b"\n"):
        name, _, value = line.partition(b" ")
        if name in _FIELDS:
            try:
                found[name.decode()] = int(value)
            except ValueError:
                continue
    return found


class Vm:
    """Counters of the kernel's memory management, from /proc/vmstat."""

    name = "vm"
    every = 1.0
    urgent = False

    def __init__(self, proc: str = "/proc") -> None:
        self._path = f"{proc}/vmstat"

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        try:
            return parse_vmstat(read_whole(self._path))
        except OSError as error:
            raise NoData(f"{self._path} could not be read: {error.strerror}") from error


PROBES = [Vm]
