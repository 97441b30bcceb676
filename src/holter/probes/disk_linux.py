"""Space on every file system that the run writes to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from holter.errors import NoData
from holter.probes.aside import Aside, Late
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import names_a_file, open_paths, opened_for_writing, read_short, read_whole, table, text
from holter.record import environment

SEARCH_BUDGET = 0.002  # seconds of looking through descriptors per reading
MAX_WAIT_S = 0.1  # seconds for a file system that lies behind a network
_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs", "gluster", "virtiofs")
# Not places where a run's files go; /dev/shm has a probe of its own.
_NO_FILES = ("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "mqueue", "trace", "debugfs", "security", "bpf")


class Mounted(NamedTuple):
    """One mounted file system."""

    number: int
    point: str
    kind: str

    @property
    def holds_files(self) -> bool:
        return not self.kind.startswith(_NO_FILES) and self.point != "/dev/shm"

    @property
    def is_remote(self) -> bool:
        return self.kind.startswith(_NETWORK) and self.kind != "fusectl"


def parse_mountinfo(raw: bytes) -> list[Mounted]:
    """Every mount, in the order in which they cover each other."""
    found = []
    for line in text(raw).splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if dash and len(fields) >= 5 and fields[0].isdecimal():
            point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            found.append(Mounted(int(fields[0]), point, right.split(" ")[0]))
    return found


def mount_of(path: str, mounts: Sequence[Mounted]) -> Mounted | None:
    """The mount that a path lies on, told by the names alone: asking the file system could block."""
    best: Mounted | None = None
    for mount in mounts:
        under = mount.point == "/" or path == mount.point or path.startswith(mount.point + "/")
        # Of two mounts at one place the later covers the earlier.
        if under and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


_OFTEN_AT_FIRST = 60
_LOOKED_AT = 32  # file systems whose filling is watched
_OURS = 0.5  # of what a file system filled by
_FILLED = 0.02  # of a file system's size: what was written to it meanwhile and can't be told by an open file


class Disk:
    """Free space where the run writes: its open files, working folder, TMPDIR, and the records' own place."""

    name = "disk"
    every = 1.0
    urgent = False

    def __init__(
        self,
        proc: str = "/proc",
        home: str | None = None,
        statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._proc = proc
        self._home = home or os.environ.get(environment.HOME) or os.path.expanduser("~/.holter")
        self._statvfs = statvfs
        self._clock = clock
        self._places: tuple[int, list[str]] | None = None
        self._search: Iterator[None] | None = None
        self._written: dict[str, str] = {}  # mount point → a file that was written there
        self._asked: dict[str, Aside[os.statvfs_result]] = {}
        self._readings = 0
        self._at_first: dict[str, tuple[int, int]] = {}  # mount point → bytes used there, bytes written by the run

    def read(self, tree: Tree) -> Reading:
        # At first each second: a run that is short must have been seen writing before it ends.
        self._readings += 1
        self.every = 1.0 if self._readings < _OFTEN_AT_FIRST else 5.0
        try:
            mounts = parse_mountinfo(read_whole(f"{self._proc}/{tree.root}/mountinfo"))
        except OSError:
            if not self._written:
                return {}  # the command has just ended
            mounts = parse_mountinfo(read_whole(f"{self._proc}/self/mountinfo"))
        self._look_at_descriptors(tree, {mount.number: mount for mount in mounts})
        self._look_for_filling(tree, mounts)
        here: dict[str, str] = {}
        for path in self._starting_places(tree.root):
            mount = mount_of(path, mounts)
            if mount is not None and mount.holds_files:
                here.setdefault(mount.point, path)
        rows: list[dict[str, Any]] = []
        unreachable = ""
        kinds = {mount.point: mount for mount in mounts}
        for point, path in {**here, **self._written}.items():
            if point not in kinds:
                self._written.pop(point, None)  # unmounted
                continue
            try:
                space = self._space(kinds[point])
            except Late:
                unreachable = point
                continue
            except OSError:
                continue
            row: dict[str, Any] = {
                "path": path,
                "mount": point,
                "total": space.f_blocks * space.f_frsize,
                "free": space.f_bavail * space.f_frsize,
            }
            if space.f_files:  # btrfs and most network file systems count no inodes
                row["inodes_free"] = space.f_favail
            rows.append(row)
        if not rows:
            if unreachable:
                raise NoData(f"no answer from the file system at {unreachable}: is its server reachable?")
            return {}
        return {"list": rows}

    def _look_for_filling(self, tree: Tree, mounts: Sequence[Mounted]) -> None:
        """A checkpoint is written and closed between two readings: a file system that fills shows it all the same.

        Others write there too: it counts only where this run wrote as much meanwhile.
        """
        local = dict.fromkeys(mount.point for mount in mounts if mount.holds_files and not mount.is_remote)
        own = self._wrote(tree)
        for point in list(local)[:_LOOKED_AT]:
            if point in self._written:
                continue
            try:
                space = self._statvfs(point)
            except OSError:
                continue
            used = (space.f_blocks - space.f_bfree) * space.f_frsize
            before, wrote = self._at_first.setdefault(point, (used, own or 0))
            if used - before > _FILLED * space.f_blocks * space.f_frsize > 0:
                # Of processes that have just ended it can't be asked any more.
                if own is None or own - wrote >= _OURS * (used - before):
                    self._written[point] = point
                else:
                    self._at_first[point] = used, own

    def _wrote(self, tree: Tree) -> int | None:
        """Bytes that the run's processes have handed to the kernel to write, wherever to; None where none can tell."""
        total: int | None = None
        for pid in tree.pids:
            try:
                total = (total or 0) + table(read_short(f"{self._proc}/{pid}/io")).get("wchar:", 0)
            except OSError:
                continue
        return total

    def _space(self, mount: Mounted) -> os.statvfs_result:
        if not mount.is_remote:
            return self._statvfs(mount.point)
        aside = self._asked.setdefault(mount.point, Aside())
        return aside.ask(lambda: self._statvfs(mount.point), MAX_WAIT_S)

    def _starting_places(self, root: int) -> list[str]:
        """Where a run writes before it has opened anything."""
        if self._places is None or self._places[0] != root:
            temporary = "/tmp"
            try:
                for variable in read_whole(f"{self._proc}/{root}/environ").split(b"\0"):
                    if variable.startswith(b"TMPDIR=/"):
                        temporary = text(variable[len(b"TMPDIR=") :])
            except OSError:
                pass
            self._places = (root, [os.path.abspath(self._home), temporary])
        try:
            return [os.readlink(f"{self._proc}/{root}/cwd"), *self._places[1]]
        except OSError:
            return self._places[1]

    def _look_at_descriptors(self, tree: Tree, mounts: dict[int, Mounted]) -> None:
        """Goes on with the search where the last reading left it, for as long as the budget lasts."""
        if self._search is None:
            self._search = self._search_all(list(tree.pids), mounts)
        deadline = self._clock() + SEARCH_BUDGET
        for _ in self._search:
            if self._clock() >= deadline:
                return
        self._search = None

    def _search_all(self, pids: list[int], mounts: dict[int, Mounted]) -> Iterator[None]:
        for pid in pids:
            for number, path in open_paths(pid, self._proc):
                yield
                if not names_a_file(path):  # a deleted one still takes its space
                    continue
                try:
                    fdinfo = read_short(f"{self._proc}/{pid}/fdinfo/{number}")
                    mount = mounts.get(opened_for_writing(fdinfo) or -1)
                except (OSError, ValueError):
                    continue
                if mount is not None and mount.holds_files:
                    self._written[mount.point] = path.removesuffix(" (deleted)")


PROBES = [Disk]
