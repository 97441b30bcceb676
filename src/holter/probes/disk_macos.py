"""Space on every file system that the run writes to, on macOS."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import psutil

from holter.errors import NoData
from holter.probes.aside import Aside, Late
from holter.probes.probe import Reading, Tree
from holter.record import environment

MAX_WAIT_S = 0.1  # seconds; a share that is gone never answers


def _place(path: str) -> tuple[str, os.stat_result, os.statvfs_result]:
    """The mount point above a path and the space there; a path that does not exist counts as its parent."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    device = os.stat(path)
    point = path
    while point != "/" and os.stat(os.path.dirname(point)).st_dev == device.st_dev:
        point = os.path.dirname(point)
    return point, device, os.statvfs(path)


class Disk:
    """Free space where the run writes: its open files, its working folder, the temporary folder, the records.

    Which files are open for writing macOS does not tell: any regular file that is open stands for its place.
    """

    name = "disk"
    every = 5.0
    urgent = False

    def __init__(self, home: str | None = None) -> None:
        self._home = home or os.environ.get(environment.HOME) or os.path.expanduser("~/.holter")
        self._asked: dict[str, Aside[tuple[str, os.stat_result, os.statvfs_result]]] = {}

    def read(self, tree: Tree) -> Reading:
        rows: dict[int, dict[str, Any]] = {}
        late = ""
        for path in self._paths(tree.root):
            folder = path if os.path.isdir(path) else os.path.dirname(path)
            aside = self._asked.setdefault(folder, Aside())
            try:
                point, device, space = aside.ask(lambda folder=folder: _place(folder), MAX_WAIT_S)  # type: ignore[misc]
            except Late:
                late = folder
                continue
            except OSError:
                continue
            if device.st_dev not in rows:
                rows[device.st_dev] = {
                    "path": path,
                    "mount": point,
                    "total": space.f_blocks * space.f_frsize,
                    "free": space.f_bavail * space.f_frsize,
                    "inodes_free": space.f_favail,
                }
        if not rows:
            if late:
                raise NoData(f"no answer from the file system at {late}: is its server reachable?")
            return {}
        return {"list": list(rows.values())}

    def _paths(self, root: int) -> list[str]:
        found = []
        try:
            process = psutil.Process(root)
            found.append(process.cwd())
            found.extend(opened.path for opened in process.open_files()[:32])
        except (psutil.Error, OSError):
            pass
        return [*found, tempfile.gettempdir(), os.path.abspath(self._home)]


PROBES = [Disk]
