"""The largest size that fits: memory only grows with the batch, so it is found by halving."""

from __future__ import annotations

from collections.abc import Callable


def largest(fits: Callable[[int], bool], near: int = 1, most: int = 1 << 22, fine: int = 400) -> int:
    """The largest size for which `fits` holds, to one part in `fine`; 0 when not even one sample does.

    `near` is a first guess: from there it doubles or halves until the answer lies between two sizes.
    """
    low, high = 0, max(1, near)
    while high < most and fits(high):
        low, high = high, high * 2
    while low == 0 and high > 1:
        middle = max(1, high // 2)
        if fits(middle):
            low = middle
        else:
            high = middle
    while high - low > max(1, low // fine) and low:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
