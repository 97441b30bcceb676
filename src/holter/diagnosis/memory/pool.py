"""What a framework's own allocator held when it refused: in use, in reserve, free, and what was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import message_of
from holter.diagnosis.ending.tracebacks import Raised, printed_text
from holter.record.events.timeline import DeviceMemory

_SIZE = r"([\d.]{1,20}) ?([KMGT]?i?B|bytes)"
_OUT = re.compile(r"(?:CUDA|HIP|XPU|MPS backend) out of memory")
_ASKED = re.compile(rf"[Tt]ried to allocate {_SIZE}")
_UNALLOCATED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_ALLOCATED = re.compile(
    rf"(?:Of the allocated memory|{_SIZE} already allocated)\s*(?:{_SIZE} is allocated by PyTorch)?"
)
_IN_ALL = re.compile(rf"{_SIZE} reserved in total by PyTorch")
_FREE = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free;")
# TensorFlow's allocator writes this to its log, then a dump of its pool.
_BFC = re.compile(rf"Allocator \((?P<name>[^)]*)\) ran out of memory trying to allocate {_SIZE}")
_STATS = re.compile(r"Limit:\s+(?P<limit>\d{1,20})\s+InUse:\s+(?P<used>\d{1,20})")
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


@dataclass(frozen=True)
class Pool:
    """An allocator's books at the moment it refused; sizes in bytes."""

    framework: str
    asked: float | None
    allocated: float
    reserve: float
    free: float = 0.0
    words: str = ""
    retries: int = 0


def pool_of(record: RecordLike, raised: Raised | None) -> Pool | None:
    """Read the books from the error's own words, else from TensorFlow's log; None where neither says enough."""
    message = message_of(raised)
    return (_pytorch(record, message) if _OUT.search(message) else None) or _tensorflow(record, message)


def _pytorch(record: RecordLike, message: str) -> Pool | None:
    asked, unallocated, in_all = (
        first_size(_ASKED, message),
        first_size(_UNALLOCATED, message),
        first_size(_IN_ALL, message),
    )
    # Under a limit of the process's own (set_per_process_memory_fraction) what is free on the card is not its to take.
    free = 0.0 if " allowed; " in message else first_size(_FREE, message) or 0.0
    allocated = next((size for match in _ALLOCATED.finditer(message) if (size := _size(match.groups()))), None)
    if allocated is None:
        return None
    if unallocated is None and in_all is not None:
        unallocated = max(0.0, in_all - allocated)
    if unallocated is None:
        return None
    tries = [n for line in record.of(DeviceMemory) if (n := line.retries) is not None]
    return Pool("torch", asked, allocated, unallocated, free, "by PyTorch's own count", max(tries, default=0))


def _tensorflow(record: RecordLike, message: str) -> Pool | None:
    text = printed_text(record)
    refused = list(_BFC.finditer(text)) or list(_BFC.finditer(message))
    stats = list(_STATS.finditer(text))
    if not refused or not stats:
        return None
    asked = _size(refused[-1].groups()[1:])
    limit, used = float(stats[-1]["limit"]), float(stats[-1]["used"])
    return Pool("tensorflow", asked, used, max(0.0, limit - used), 0.0, f"by the allocator {refused[-1]['name']}")


def first_size(pattern: re.Pattern[str], message: str) -> float | None:
    """Give the first amount that a pattern finds in a message, in bytes."""
    match = pattern.search(message)
    return _size(match.groups()) if match else None


def size_in(value: str, unit: str) -> float:
    """Give an amount with its unit in bytes; 0 for what is no number."""
    return _size((value, unit)) or 0.0


def _size(groups: tuple[str | None, ...]) -> float | None:
    """Give the first amount with its unit among the groups of a match."""
    for value, unit in pairwise(groups):
        if value and unit and unit[0].lower() in _UNITS:
            try:
                return float(value) * _UNITS[unit[0].lower()]
            except ValueError:
                continue
    return None
