"""Pressure stall information: for how long tasks had to wait for memory, CPU and I/O."""

from __future__ import annotations

from typing import Any

from holter.errors import NoData
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_short


def parse_pressure(raw: bytes) -> dict[str, float]:
    """How long some task waited: cumulative microseconds, and the per cent of the last 10 seconds."""
    for line in raw.decode("ascii", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        values = dict(pair.split("=", 1) for pair in rest.split() if "=" in pair)
        try:
            if kind == "some":
                return {"some_us": int(values["total"]), "some10": float(values["avg10"])}
        except (KeyError, ValueError):
            continue
    return {}


class Pressure:
    """Waiting for memory, CPU and I/O, machine-wide, from /proc/pressure."""

    name = "pressure"
    every = 1.0
    urgent = False

    def __init__(self, proc: str = "/proc") -> None:
        self._folder = f"{proc}/pressure"

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        reading: dict[str, Any] = {}
        because = ""
        for resource in ("memory", "cpu", "io"):
            try:
                values = parse_pressure(read_short(f"{self._folder}/{resource}", 512))
            except OSError as error:
                because = str(error.strerror)
                continue
            if values:
                reading[resource] = values
        if not reading:
            raise NoData(
                f"no pressure information ({because or 'empty files'}): it needs a kernel >= 4.20 with PSI; "
                "where PSI is switched off, boot with psi=1"
            )
        return reading


PROBES = [Pressure]
