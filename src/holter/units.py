"""Numbers as people read them."""

from __future__ import annotations

import math


def size(n: float) -> str:
    """Bytes, in the decimal units that memory limits and disks are sold in."""
    sign = "-" if n < 0 else ""
    n = abs(n)
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= factor * 0.9995:
            value = n / factor
            return f"{sign}{value:.0f} {unit}" if value >= 99.95 else f"{sign}{value:.1f} {unit}"
    return f"{sign}{n:.0f} bytes"


def duration(seconds: float) -> str:
    """A span of time in at most two units: '12 min 4 s', '2 h 10 min', '340 ms'."""
    if seconds < 0 or not math.isfinite(seconds):
        return "an unknown time"
    if seconds < 0.0005:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    for big, small, factor, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if rounded >= factor:
            rest = (rounded % factor) // part
            return f"{rounded // factor} {big} {rest} {small}" if rest else f"{rounded // factor} {big}"
    return f"{rounded} s"


def count(n: int) -> str:
    """A whole number with its thousands apart."""
    return f"{n:,}"


def share(fraction: float) -> str:
    """A part of a whole, in per cent."""
    return f"{fraction * 100:.0f} %" if fraction >= 0.0995 else f"{fraction * 100:.1f} %"


def rate(per_second: float) -> str:
    """A pace as people say it: no exponents, no digits that mean nothing."""
    if per_second >= 100:
        return count(round(per_second))
    return f"{per_second:.1f}" if per_second >= 0.05 or per_second == 0 else f"{per_second:.2g}"
