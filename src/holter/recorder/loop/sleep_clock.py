"""How long the machine has been asleep: the clock that runs on in sleep, less the one that stands still."""

from __future__ import annotations

import time

# Linux counts sleep in BOOTTIME and not in MONOTONIC; macOS in MONOTONIC and not in UPTIME_RAW.
_PAIRS = (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW"))


def asleep() -> float | None:
    """Seconds of sleep since the machine was started; None where no pair of clocks tells."""
    for through, awake in _PAIRS:
        if hasattr(time, through) and hasattr(time, awake):
            try:
                return time.clock_gettime(getattr(time, through)) - time.clock_gettime(getattr(time, awake))
            except OSError:
                continue
    return None
