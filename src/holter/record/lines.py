"""JSON lines that may have been cut off, damaged or made by someone else."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import stat
import zlib
from pathlib import Path
from typing import Any

_LONGEST_LINE = 4 << 20
_MOST_BYTES = 64 << 20  # a file that is larger, or swells to more, is not one of ours


def dump(line: dict[str, Any]) -> bytes:
    """One line as bytes; numbers that JSON does not know become null."""
    try:
        text = json.dumps(line, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(line), separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def parse(raw: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines that are whole, and how many were not."""
    lines: list[dict[str, Any]] = []
    bad = 0
    # One at a time: a file of nothing but line ends must not fill the memory.
    for found in re.finditer(rb"[^\n]+", raw):
        if not found[0].strip():
            continue
        line = _one(found[0])
        if line is None:
            bad += 1
        else:
            lines.append(line)
    return lines, bad


def _one(piece: bytes) -> dict[str, Any] | None:
    if len(piece) > _LONGEST_LINE:
        return None
    try:
        line = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("k"), str):
        return None
    return line if _is_time(line.get("t")) and _is_time(line.get("m")) else None


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The beginning of a regular file. A link could lead out of the record, and a pipe would never end: OSError."""
    return read_from(path, 0, most)


def read_from(path: Path, begin: int, most: int) -> bytes:
    """A part of a regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a regular file")
        file.seek(begin)
        return file.read(most)


def load(path: Path, most: int = _MOST_BYTES) -> tuple[bytes, bool]:
    """A file's content, unpacked, up to a limit; and whether that is all of it."""
    raw = read_bytes(path, most)
    return _unpack(raw, most) if path.suffix == ".gz" else (raw, True)


def read_file(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All whole lines of a file, packed or not, and how many were not whole; a damaged end costs only itself."""
    try:
        raw, whole = load(path)
    except OSError:
        return [], 1
    lines, bad = parse(raw)
    return lines, bad if whole else max(bad, 1)


def _unpack(raw: bytes, most: int) -> tuple[bytes, bool]:
    """What can be unpacked, up to a limit, and whether that was all of it."""
    found = bytearray()
    try:
        with gzip.open(io.BytesIO(raw), "rb") as file:
            # In small pieces: what came before a damaged place is kept.
            while len(found) < most:
                piece = file.read(16384)
                if not piece:
                    return bytes(found), True
                found += piece
    except (EOFError, OSError, zlib.error):
        pass
    return bytes(found), False


def pack(data: bytes) -> bytes:
    """Bytes as a packed file holds them."""
    return gzip.compress(data, 6)
