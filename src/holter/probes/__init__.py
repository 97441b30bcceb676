"""Readings from outside the training process, one source per file, the platform in the file's name."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator

from holter.errors import NoData
from holter.probes.probe import Probe, Reading, Tree

# Written once, here: a module whose name ends in another platform's suffix is never imported.
SUFFIXES = {"linux": "_linux", "darwin": "_macos"}


class Declined:
    """Stands in for a probe that could not be set up, so that its reason reaches the record."""

    urgent = False
    every = 3600.0

    def __init__(self, name: str, because: str) -> None:
        self.name = name
        self._because = because

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        raise NoData(self._because)


def modules_for(platform: str) -> Iterator[str]:
    """The modules of this folder that belong to a platform: those with its suffix, and those with none."""
    others = tuple(suffix for name, suffix in SUFFIXES.items() if name != platform)
    for module in pkgutil.iter_modules(__path__):
        if not module.name.endswith(others):
            yield module.name


def probes_here() -> list[Probe]:
    """One of each probe that this platform has: every class in the `PROBES` of this platform's modules."""
    found: list[Probe] = []
    for name in modules_for(sys.platform):
        try:
            module = importlib.import_module(f"{__name__}.{name}")
            found.extend(make() for make in getattr(module, "PROBES", ()))
        except Exception as error:
            # One source that cannot be set up must not cost the run all the others.
            found.append(Declined(name, f"the probe could not be set up: {type(error).__name__}: {error}"))
    return found
