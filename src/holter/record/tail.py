"""The last 256 KB of the command's output, in a file of fixed size: it is there after any kill."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from holter.record.lines import read_bytes

KEEP = 256 * 1024
_HEAD = struct.Struct("<8sQQ")  # magic, bytes kept, bytes written so far
_MAGIC = b"HOLTTAIL"
_DATA_AT = 64


class OutputTail:
    """Writes into a ring of bytes; a full disk is found when it is made.

    Not mapped: whoever cuts the file off costs us the output, where a store into a mapped page would be a SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = self._written_before()
            self._total = before or 0
            if before is None:
                self._begin()
        except OSError:
            self.close()
            raise

    def _written_before(self) -> int | None:
        """How much another keeper had written, whose place we take; None where there was none."""
        raw = os.pread(self._fd, _HEAD.size, 0)
        if len(raw) < _HEAD.size:
            return None
        magic, keep, total = _HEAD.unpack(raw)
        return int(total) if magic == _MAGIC and keep == KEEP else None

    def _begin(self) -> None:
        self._total = 0
        for at in range(0, KEEP, 65536):
            _write_at(self._fd, bytes(65536), _DATA_AT + at)
        self._head()

    def write(self, data: bytes) -> None:
        """Keep the end of the output; raises OSError where that can't be written."""
        if os.fstat(self._fd).st_size < _DATA_AT + KEEP:
            self._begin()  # someone has cut it off: what comes from here on is kept
        total = self._total + len(data)
        data = data[-KEEP:]
        at = (total - len(data)) % KEEP
        first = min(len(data), KEEP - at)
        _write_at(self._fd, data[:first], _DATA_AT + at)
        _write_at(self._fd, data[first:], _DATA_AT)
        self._total = total
        self._head()

    def _head(self) -> None:
        _write_at(self._fd, _HEAD.pack(_MAGIC, KEEP, self._total), 0)

    def close(self) -> None:
        os.close(self._fd)


def _write_at(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


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
