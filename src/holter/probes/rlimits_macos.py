"""The limits that the command was started under, on macOS."""

from __future__ import annotations

import resource

from holter.probes.probe import Reading, Tree

_NAMES = ("nofile", "as", "data", "nproc", "core")


class Rlimits:
    """Soft resource limits; macOS shows only one's own, which the command inherited."""

    name = "rlimits"
    every = 30.0
    urgent = False

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        found = {}
        for name in _NAMES:
            number = getattr(resource, f"RLIMIT_{name.upper()}", None)
            if number is None:
                continue
            soft, _ = resource.getrlimit(number)
            if soft != resource.RLIM_INFINITY:
                found[name] = soft
        return found


PROBES = [Rlimits]
