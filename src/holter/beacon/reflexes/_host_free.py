"""How much of the host's memory a copy of ours may take: a tenth of what is free, never the last straw."""

import os

from ._room_torch import UNLIMITED, HostRoom

SHARE = 10


def allowance():
    """Bytes that may be taken for copies; 0 where it can't be told."""
    free = min(_available(), _group(), _before_the_wall())
    return 0 if free >= UNLIMITED else max(0, free) // SHARE


def _available():
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:  # elsewhere only the whole is known: count half of it as taken
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError):
        return UNLIMITED


def _group():
    """What is left to the process's own control group."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit) as file, open(used) as other:
                return int(file.read()) - int(other.read())
        except (OSError, ValueError):
            continue
    return UNLIMITED


def _before_the_wall():
    room = HostRoom()
    try:
        return room.left()
    finally:
        if room.file is not None:
            os.close(room.file)
