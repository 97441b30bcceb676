"""The last 256 KB of the command's output, in mapped memory: it is there after any kill."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from holter.record.lines import read_bytes

KEEP = 256 * 1024
_HEAD = struct.Struct("<8sQQ")  # magic, bytes kept, bytes written so far
_MAGIC = b"HOLTTAIL"
_DATA_AT = 64


class OutputTail:
    """Writes into a ring of bytes; a full disk is found when it is made, never when output flows."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            left = _DATA_AT + KEEP
            while left:
                left -= os.write(fd, bytes(min(left, 65536)))
            self._map = mmap.mmap(fd, _DATA_AT + KEEP)
        finally:
            os.close(fd)
        self._total = 0
        self._map[: _HEAD.size] = _HEAD.pack(_MAGIC, KEEP, 0)

    def write(self, data: bytes) -> None:
        total = self._total + len(data)
        data = data[-KEEP:]
        at = (total - len(data)) % KEEP
        first = min(len(data), KEEP - at)
        self._map[_DATA_AT + at : _DATA_AT + at + first] = data[:first]
        if first < len(data):
            self._map[_DATA_AT : _DATA_AT + len(data) - first] = data[first:]
        self._total = total
        self._map[: _HEAD.size] = _HEAD.pack(_MAGIC, KEEP, total)


def read_tail(path: Path) -> bytes:
    """The kept output in order; empty when there is none or the file is not one of ours."""
    try:
        raw = read_bytes(path, _DATA_AT + KEEP)
    except OSError:
        return b""
    if len(raw) < _DATA_AT + KEEP:
        return b""
    magic, keep, total = _HEAD.unpack_from(raw)
    if magic != _MAGIC or keep != KEEP:
        return b""
    data = raw[_DATA_AT:]
    if total <= KEEP:
        return data[:total]
    at = total % KEEP
    return data[at:] + data[:at]
