"""Amounts of memory as people write them: 24GB, 16 GiB, 512M, or a number of bytes."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def bytes_of(amount: int | str) -> int:
    """Bytes; ValueError where it is no amount."""
    if isinstance(amount, (int, float)):
        return int(amount)
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?I?)B?\s*", amount.upper())
    if found is None or found[1].count(".") > 1 or found[1] == "." or found[2] == "I":
        raise ValueError(f"{amount!r} is not an amount of memory. Write it as 24GB or 512MB")
    amount_of = float(found[1]) * _UNITS[found[2]]
    if amount_of == float("inf"):
        raise ValueError(f"{amount!r} is more memory than there can be")
    return int(amount_of)
