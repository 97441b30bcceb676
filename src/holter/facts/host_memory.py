"""How much memory this process may still take before the kernel kills, by its control groups and by the RAM; and how
much it holds. Typed, since the planner asks the same.
"""

import os

from .group_memory import kept

_ROOTS = (("/sys/fs/cgroup/memory", "memory"), ("/sys/fs/cgroup", ""), ("/sys/fs/cgroup/unified", ""))


def left() -> "int | None":
    """Bytes that are left; None where nothing is known."""
    found = [*available(), *(free for _, free in bounds())]
    return min(found) if found else None


def bounds() -> "list[tuple[int, int]]":
    """The limits of the control groups that bound this process, each with what is left of it."""
    found = []
    for folder, limit in groups():
        used = _number(folder + "/memory.current") or _number(folder + "/memory.usage_in_bytes")
        if used:
            found.append((limit, limit - int(kept(used, *_file_pages(folder)))))
    return found


def groups() -> "list[tuple[str, int]]":
    """The control groups that bound this process, from its own outwards: their folders and limits."""
    paths: "dict[str, str]" = {}
    found = []
    for line in _lines("/proc/self/cgroup"):
        controllers, path = line.strip().split(":", 2)[1:]
        paths.update((name, path) for name in controllers.split(","))
    for root, controller in _ROOTS:
        path = paths.get(controller)
        while path is not None:
            folder = root + path.rstrip("/")
            limit = _number(folder + "/memory.max") or _number(folder + "/memory.limit_in_bytes")
            if limit and limit < 1 << 60:
                found.append((folder, limit))
            path = os.path.dirname(path) if path not in ("/", "") else None
    return found


def _file_pages(folder):
    """Bytes of page cache, and what of them is shared memory."""
    table = dict(line.split()[:2] for line in _lines(folder + "/memory.stat"))
    cached, shared = table.get("total_cache") or table.get("file"), table.get("total_shmem") or table.get("shmem")
    return int(cached or 0), int(shared or 0)


def available() -> "list[int]":
    """What the RAM still has; empty where the kernel does not say."""
    return [int(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable")]


def _number(path):
    try:
        return int(next(iter(_lines(path)), ""))
    except ValueError:
        return None


def _lines(path):
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []


def trim() -> None:
    """Have the C library give back what it keeps for later."""
    import ctypes

    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def held() -> "int | None":
    """What this process holds now; the mark of its highest begins here anew. None where it can't be set."""
    trim()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return None
    return status("VmRSS")


def highest() -> int:
    """The most that it held since."""
    return status("VmHWM")


def status(name: str) -> int:
    """One figure of the kernel's page on this process; 0 where it is not there."""
    for line in _lines("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
