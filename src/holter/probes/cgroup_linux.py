"""The control group that holds the run: how near its memory limit is, and whether the kernel killed in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from holter.errors import NoData
from holter.probes.pressure_linux import parse_pressure
from holter.probes.probe import Reading, Tree
from holter.probes.procfs_linux import read_short, read_whole, table, text

LOOK_FOR_LIMITS_EVERY = 5.0


@dataclass(frozen=True)
class Mount:
    """One mounted hierarchy: which part of it (`root`) shows up where (`point`)."""

    version: int
    controllers: frozenset[str]
    root: str
    point: str
    local_events: bool


@dataclass(frozen=True)
class Level:
    """One control group on the way up: its name in the hierarchy, and the folder where we see it."""

    path: str
    folder: str

    def number(self, file: str) -> int | None:
        """A file that holds one number; None when it is not there or says `max`."""
        try:
            return int(read_short(f"{self.folder}/{file}", 128))
        except (OSError, ValueError):
            return None

    def table(self, file: str) -> dict[str, int]:
        try:
            return table(read_short(f"{self.folder}/{file}"))
        except OSError:
            return {}

    def has(self, file: str) -> bool:
        return os.path.exists(f"{self.folder}/{file}")


@dataclass
class Chain:
    """A process's group in one hierarchy and all groups above it, the process's own first."""

    mount: Mount
    levels: list[Level] = field(default_factory=list)

    def up_to(self, top: Level) -> list[Level]:
        return self.levels[: self.levels.index(top) + 1]


def parse_mounts(mountinfo: bytes, sys: str = "/sys") -> list[Mount]:
    """The control-group hierarchies of a mountinfo; `sys` stands where /sys was."""
    found = []
    for line in text(mountinfo).splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if not dash or len(before) < 5 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
            continue
        point = before[4].replace("\\040", " ")
        if point == "/sys" or point.startswith("/sys/"):
            point = sys + point[len("/sys") :]
        options = frozenset(after[2].split(","))
        version = 2 if after[0] == "cgroup2" else 1
        found.append(Mount(version, options, before[3], point, "memory_localevents" in options))
    return found


def parse_membership(raw: bytes) -> dict[str, str]:
    """Controller → group path; the unified hierarchy goes by the empty name."""
    found = {}
    for line in text(raw).splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        path = path.removesuffix(" (deleted)")
        if number == "0" and not controllers:
            found[""] = path
        for controller in filter(None, controllers.split(",")):
            found[controller] = path
    return found


def chain(mount: Mount, path: str) -> Chain:
    """The folders for a group and those above it, as far as they can be seen from here.

    A container sees a part of the hierarchy: with its own namespace the path is '/', without it the path is
    the host's and the mount says which part of it lies at the mount point.
    """
    root = mount.root.rstrip("/")
    inside = path[len(root) :] if root and (path == root or path.startswith(root + "/")) else path
    prefix = root if inside is not path else ""
    parts = [part for part in inside.split("/") if part not in ("", ".", "..")]
    while parts and not os.path.isdir("/".join([mount.point, *parts])):
        parts.pop()
    found = Chain(mount)
    for depth in range(len(parts), -1, -1):
        name = prefix + "".join(f"/{part}" for part in parts[:depth])
        found.levels.append(Level(name or "/", "/".join([mount.point, *parts[:depth]])))
    return found


class Cgroup:
    """Memory limit, usage, kills and throttling of the run's control group, version 1, 2 or both at once.

    The limit is the lowest on the way up, since that is the wall the run will meet; usage, `at_limit` and
    `peak` are those of the group that sets it. `oom_kill` covers that group down to the run's own: version 2
    counts a kill in every group above the victim's, version 1 (and version 2 mounted with
    memory_localevents) in the victim's alone, so there the counts on the way are added up.
    """

    name = "cgroup"
    every = 1.0
    urgent = True

    def __init__(self, proc: str = "/proc", sys: str = "/sys", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._sys = sys
        self._clock = clock
        self._membership: dict[str, str] = {}
        self._membership_raw = b""
        self._memory: Chain | None = None
        self._cpu: Chain | None = None
        self._pids: Chain | None = None
        self._looked_at = float("-inf")
        self._limit_level: Level | None = None
        self._quota_levels: list[Level] = []
        self._cpu_limit: float | None = None
        self._pids_level: Level | None = None
        self._ram: int | None = None

    def read(self, tree: Tree) -> Reading:
        self._follow(tree.root)
        if self._memory is None:
            raise NoData("no control group of the run can be seen here: /sys/fs/cgroup is not mounted")
        now = self._clock()
        if now - self._looked_at >= LOOK_FOR_LIMITS_EVERY:
            self._looked_at = now
            self._look_for_limits()
        reading: dict[str, Any] = {
            "version": self._memory.mount.version,
            "path": self._memory.levels[0].path,
        }
        level = self._limit_level or self._charged(self._memory)
        if level is not None:
            read_memory = self._version_2 if self._memory.mount.version == 2 else self._version_1
            read_memory(reading, self._memory, level)
        self._throttling(reading)
        if self._pids_level is not None:
            _put(reading, "pids", self._pids_level.number("pids.current"))
            _put(reading, "pids_limit", self._pids_level.number("pids.max"))
        return reading

    def _follow(self, root: int) -> None:
        """Finds the run's groups anew when the process was moved; a process that is gone keeps its last."""
        try:
            raw = read_whole(f"{self._proc}/{root}/cgroup")
        except OSError:
            return
        if raw == self._membership_raw and self._memory is not None:
            return
        membership = parse_membership(raw)
        known = self._membership.get("memory", "/")
        if membership.get("memory") == "/" != known:
            # Version 1 shows a process that is exiting in '/': its counters still lie where it was.
            return
        self._membership_raw, self._membership = raw, membership
        try:
            mounts = parse_mounts(read_whole(f"{self._proc}/self/mountinfo"), self._sys)
        except OSError:
            mounts = []
        self._memory = self._chain("memory", mounts)
        self._cpu = self._chain("cpu", mounts)
        self._pids = self._chain("pids", mounts)
        self._looked_at = float("-inf")

    def _chain(self, controller: str, mounts: Iterable[Mount]) -> Chain | None:
        """The hierarchy that rules a controller: version 1 where it has claimed it, else the unified one."""
        for mount in mounts:
            if mount.version == 1 and controller in mount.controllers and controller in self._membership:
                return chain(mount, self._membership[controller])
        for mount in mounts:
            if mount.version == 2 and "" in self._membership:
                return chain(mount, self._membership[""])
        return None

    def _look_for_limits(self) -> None:
        self._limit_level = None
        self._pids_level = None
        lowest: float = self._machine_memory()
        if self._memory is not None:
            for level in self._memory.levels:
                limit = level.number(_LIMIT[self._memory.mount.version])
                # Version 1 writes 'no limit' as a number near 2**63: above the machine's memory none binds.
                if limit is not None and limit < lowest:
                    lowest, self._limit_level = limit, level
        self._look_for_quota()
        fewest = float("inf")
        for level in self._pids.levels if self._pids is not None else ():
            most = level.number("pids.max")
            if most is not None and most < fewest:
                fewest, self._pids_level = most, level
            elif self._pids_level is None and level.has("pids.current"):
                self._pids_level = level

    def _look_for_quota(self) -> None:
        self._quota_levels = []
        self._cpu_limit = None
        if self._cpu is None:
            return
        for level in self._cpu.levels:
            if self._cpu.mount.version == 2:
                try:
                    quota, period = (int(part) for part in read_short(f"{level.folder}/cpu.max", 128).split())
                except (OSError, ValueError):
                    continue
            else:
                quota = level.number("cpu.cfs_quota_us") or 0
                period = level.number("cpu.cfs_period_us") or 0
            if quota > 0 and period > 0:
                self._quota_levels.append(level)
                cores = quota / period
                self._cpu_limit = cores if self._cpu_limit is None else min(cores, self._cpu_limit)

    def _charged(self, memory: Chain) -> Level | None:
        """The nearest group that memory is counted in, which need not be the process's own."""
        usage = "memory.current" if memory.mount.version == 2 else "memory.usage_in_bytes"
        return next((level for level in memory.levels if level.has(usage)), None)

    def _version_2(self, reading: dict[str, Any], memory: Chain, level: Level) -> None:
        self._put_limit(reading, level)
        _put(reading, "usage", level.number("memory.current"))
        _put(reading, "high", level.number("memory.high"))
        _put(reading, "peak", level.number("memory.peak"))
        _put(reading, "swap_usage", level.number("memory.swap.current"))
        _put(reading, "swap_limit", level.number("memory.swap.max"))
        stat = level.table("memory.stat")
        for name, of_kernel in _STAT_2.items():
            _put(reading, name, stat.get(of_kernel))
        _put(reading, "some_us", _pressure(level).get("some_us"))
        events = level.table("memory.events")
        _put(reading, "oom", events.get("oom"))
        _put(reading, "at_limit", events.get("max"))
        if memory.mount.local_events:
            kills = [g.table("memory.events").get("oom_kill") for g in memory.up_to(level)]
            _put(reading, "oom_kill", _sum_of_known(kills))
        else:
            _put(reading, "oom_kill", events.get("oom_kill"))

    def _version_1(self, reading: dict[str, Any], memory: Chain, level: Level) -> None:
        limit = self._put_limit(reading, level)
        _put(reading, "usage", level.number("memory.usage_in_bytes"))
        _put(reading, "peak", level.number("memory.max_usage_in_bytes"))
        _put(reading, "at_limit", level.number("memory.failcnt"))
        stat = level.table("memory.stat")
        for name, of_kernel in _STAT_1.items():
            _put(reading, name, stat.get(of_kernel))
        both = level.number("memory.memsw.limit_in_bytes")  # of memory and swap together
        if limit is not None and both is not None and both < 2**62:
            reading["swap_limit"] = max(0, both - limit)
        kills = [group.table("memory.oom_control").get("oom_kill") for group in memory.up_to(level)]
        _put(reading, "oom_kill", _sum_of_known(kills))

    def _put_limit(self, reading: dict[str, Any], level: Level) -> int | None:
        if self._memory is None or level is not self._limit_level:
            return None
        limit = level.number(_LIMIT[self._memory.mount.version])
        if limit is None or limit >= self._machine_memory():
            return None  # lifted since the last look
        reading["limit"] = limit
        reading["limit_path"] = level.path
        return limit

    def _throttling(self, reading: dict[str, Any]) -> None:
        if self._cpu is None:
            return
        total = 0.0
        for level in self._quota_levels:
            stat = level.table("cpu.stat")
            total += stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
        reading["cpu_throttled_s"] = total
        _put(reading, "cpu_limit", self._cpu_limit)

    def _machine_memory(self) -> int:
        if self._ram is None:
            try:
                for line in read_whole(f"{self._proc}/meminfo").splitlines():
                    if line.startswith(b"MemTotal:"):
                        self._ram = int(line.split()[1]) * 1024
            except (OSError, ValueError, IndexError):
                pass
        return self._ram or 2**62


_STAT_1 = {
    "anon": "total_rss",
    "file": "total_cache",
    "shmem": "total_shmem",
    "swap_usage": "total_swap",
    "refault_anon": "total_workingset_refault_anon",
    "refault_file": "total_workingset_refault_file",
}
_STAT_2 = {
    "anon": "anon",
    "file": "file",
    "shmem": "shmem",
    "refault_anon": "workingset_refault_anon",
    "refault_file": "workingset_refault_file",
}
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}


def _pressure(level: Level) -> dict[str, float]:
    """How long this group's own processes waited for memory; the machine's figure has everybody's waits in it."""
    try:
        return parse_pressure(read_short(f"{level.folder}/memory.pressure", 512))
    except OSError:
        return {}


def _put(reading: dict[str, Any], name: str, value: float | None) -> None:
    if value is not None:
        reading[name] = value


def _sum_of_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


PROBES = [Cgroup]
