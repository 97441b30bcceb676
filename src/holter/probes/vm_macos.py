"""The machine's swap traffic on macOS."""

from __future__ import annotations

import struct

from holter.errors import NoData
from holter.probes.memory_macos import LibSystem, Source, parse_vm_statistics
from holter.probes.probe import Reading, Tree


class Vm:
    """Pages that came back from swap, under the name that Linux gives them."""

    name = "vm"
    every = 1.0
    urgent = False

    def __init__(self, source: Source | None = None) -> None:
        self._source: Source = source if source is not None else LibSystem()

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        try:
            vm = parse_vm_statistics(self._source.vm_statistics(), self._source.page)
        except (OSError, struct.error) as error:
            raise NoData(f"the system's paging counters could not be read: {error}") from error
        return {"pswpin": vm["swapins"]}


PROBES = [Vm]
