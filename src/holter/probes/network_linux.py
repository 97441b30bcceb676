"""Bytes that the run's network namespace received."""

from __future__ import annotations

from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_whole, text

# What passes a container bridge or its pairs passes a real interface too, and would be counted twice.
_PASSED_ON = ("veth", "docker", "br-", "virbr", "cni", "flannel")


def parse_net_dev(raw: bytes) -> dict[str, int]:
    """The sum over all interfaces but loopback and container bridges; empty when there is none."""
    received = interfaces = 0
    for line in text(raw).splitlines():
        name, colon, counts = line.partition(":")
        name = name.strip()
        fields = counts.split()
        if not colon or len(fields) < 9 or name == "lo" or name.startswith(_PASSED_ON):
            continue
        try:
            received += int(fields[0])
        except ValueError:
            continue
        interfaces += 1
    return {"rx_bytes": received} if interfaces else {}


class Network:
    """Traffic of the interfaces that the command sees, from /proc/<pid>/net/dev."""

    name = "network"
    every = 5.0
    urgent = False

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def read(self, tree: Tree) -> Reading:
        try:
            return parse_net_dev(read_whole(f"{self._proc}/{tree.root}/net/dev"))
        except OSError:
            return {}  # the command has just ended


PROBES = [Network]
