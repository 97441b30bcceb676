"""/dev/shm, through which DataLoader workers hand over their batches; containers give it 64 MB by default."""

from __future__ import annotations

import os

from holter.errors import NoData
from holter.probes.probe import Reading, Tree


class Shm:
    """Size and free space of the shared-memory file system."""

    name = "shm"
    every = 2.0
    urgent = False

    def __init__(self, folder: str = "/dev/shm") -> None:
        self._folder = folder

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            raise NoData(f"{self._folder} is not there: {error.strerror}") from error
        return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


PROBES = [Shm]
