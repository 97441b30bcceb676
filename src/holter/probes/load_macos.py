"""How many tasks want to run, against the CPUs there are, on macOS."""

from __future__ import annotations

import os

from holter.errors import NoData
from holter.probes.probe import Reading, Tree


class Load:
    """The machine's load of the last minute."""

    name = "load"
    every = 5.0
    urgent = False

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        try:
            reading: dict[str, float] = {"load1": os.getloadavg()[0]}
        except OSError as error:
            raise NoData("the machine's load could not be read") from error
        cpus = os.cpu_count()
        if cpus is not None:
            reading["cpus"] = cpus
        return reading


PROBES = [Load]
