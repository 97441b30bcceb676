"""How much memory this process may still take before the kernel kills: by its control groups and by the RAM."""

import os

_ROOTS = (("/sys/fs/cgroup/memory", "memory"), ("/sys/fs/cgroup", ""), ("/sys/fs/cgroup/unified", ""))


def left():
    """Bytes that are left; None where nothing is known."""
    found = [*_groups(), *_ram()]
    return min(found) if found else None


def _groups():
    paths = {}
    for line in _lines("/proc/self/cgroup"):
        controllers, path = line.strip().split(":", 2)[1:]
        paths.update((name, path) for name in controllers.split(","))
    for root, controller in _ROOTS:
        path = paths.get(controller)
        while path is not None:
            folder = root + path.rstrip("/")
            limit = _number(folder + "/memory.max") or _number(folder + "/memory.limit_in_bytes")
            used = _number(folder + "/memory.current") or _number(folder + "/memory.usage_in_bytes")
            if limit and used and limit < 1 << 60:
                yield limit - (used - _file_pages(folder))
            path = os.path.dirname(path) if path not in ("/", "") else None


def _file_pages(folder):
    """Pages of files can be dropped."""
    table = dict(line.split()[:2] for line in _lines(folder + "/memory.stat"))
    return int(table.get("total_cache") or table.get("file") or 0) - int(
        table.get("total_shmem", table.get("shmem", 0))
    )


def _ram():
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable"):
            yield int(line.split()[1]) * 1024


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


def trim():
    """Have the C library give back what it keeps for later."""
    import ctypes

    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def held():
    """What this process holds now; the mark of its highest begins here anew. None where it can't be set."""
    trim()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return None
    return _status("VmRSS")


def highest():
    """The most that it held since."""
    return _status("VmHWM")


def _status(name):
    for line in _lines("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
