"""How many tasks want to run, against the CPUs there are."""

from __future__ import annotations

import os

from holter.errors import NoData
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_short


def parse_loadavg(raw: bytes) -> dict[str, float]:
    """The load of the last minute."""
    return {"load1": float(raw.split()[0])}


class Load:
    """The machine's load, from /proc/loadavg."""

    name = "load"
    every = 5.0
    urgent = False

    def __init__(self, proc: str = "/proc", cpus: int | None = None) -> None:
        self._path = f"{proc}/loadavg"
        self._cpus = cpus if cpus is not None else os.cpu_count()

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        try:
            reading = parse_loadavg(read_short(self._path, 128))
        except OSError as error:
            raise NoData(f"{self._path} could not be read: {error.strerror}") from error
        except (ValueError, IndexError) as error:
            raise NoData(f"{self._path} has an unknown format") from error
        if self._cpus is not None:
            reading["cpus"] = self._cpus
        return reading


PROBES = [Load]
