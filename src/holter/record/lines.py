"""JSON lines that may have been cut off, damaged or made by someone else."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from pathlib import Path
from typing import Any

_LONGEST_LINE = 4 << 20
_MOST_BYTES = 256 << 20  # a packed file that swells beyond this is not one of ours


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
    for piece in raw.split(b"\n"):
        if not piece.strip():
            continue
        line = _one(piece)
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
    for name in ("t", "m"):
        value = line.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
    return line


def read_file(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All whole lines of a file, packed or not; a damaged end costs only itself."""
    try:
        if path.suffix == ".gz":
            return parse(_unpack(path))
        with open(path, "rb") as file:
            return parse(file.read(_MOST_BYTES))
    except OSError:
        return [], 1


def _unpack(path: Path) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        with gzip.open(path, "rb") as file:
            while size < _MOST_BYTES and (piece := file.read(1 << 20)):
                pieces.append(piece)
                size += len(piece)
    except (EOFError, OSError, zlib.error):
        pass
    return b"".join(pieces)
