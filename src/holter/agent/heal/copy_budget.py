"""How much of the host's memory a copy of ours may take: a tenth of what is free, and nothing near the limit."""

import os
import weakref

from ...facts import host_memory
from ..torch.heal.memory_budget import UNLIMITED, HostBudget

SHARE = 10
_NEAR_SHARE = 0.3  # of the memory that this process has or may still have: below this it belongs to the training alone

copies = weakref.WeakSet()  # of ours, each with a `release`


def allowance():
    """Bytes that may be taken for copies; 0 near the limit, and where it is not known."""
    if near(held(), free()):
        return 0
    known = host_memory.left()
    found = min(_half_of_all() if known is None else known, free_below_soft_limit())
    return 0 if found >= UNLIMITED else max(0, found) // SHARE


def _half_of_all():
    """Where only the machine's memory is known: count half of it as taken."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError):
        return UNLIMITED


def free_below_soft_limit():
    """Bytes that are free before the soft wall; beyond all measure where there is none."""
    budget = HostBudget()
    try:
        return budget.free()
    finally:
        if budget.file is not None:
            os.close(budget.file)


def near(mine, rest):
    """Whether memory is running out: so much is held, and so much is free."""
    return mine is not None and rest is not None and rest <= _NEAR_SHARE * (mine + rest)


def release():
    """Let go of all copies of ours."""
    for copy in list(copies):
        copy.release()


def free():
    """Bytes that this process may still take, before its limits and before the wall; None where nothing is known."""
    found = [one for one in (host_memory.left(), free_below_soft_limit()) if one is not None]
    return min(found) if found else None


def held():
    """What this process holds that is its own."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, shared, *_ = file.read().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
