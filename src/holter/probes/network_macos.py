"""Bytes that the machine received, on macOS."""

from __future__ import annotations

import psutil

from holter.errors import NoData
from holter.probes.probe import Reading, Tree


class Network:
    """Traffic of all interfaces but loopback."""

    name = "network"
    every = 5.0
    urgent = False

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        counters = psutil.net_io_counters(pernic=True)
        real = [count for name, count in counters.items() if name != "lo" and not name.startswith("lo0")]
        if not real:
            raise NoData("there is no network interface but loopback")
        return {"rx_bytes": sum(count.bytes_recv for count in real)}


PROBES = [Network]
