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
_MOST_BYTES = 24 << 20  # a file that is larger, or swells to more, is not one of ours
# All of a record in memory: a run of a week, with a sample a second at its end, has 16 MB and 3 million values.
_MOST_TEXT = 48 << 20
_MOST_VALUES = 3_500_000
_A_LINE = 20  # values' worth of work, however little it holds
_AN_OBJECT = 2  # more than its brace: it is held twice, as it was read and as the schema has it
_MAX_NUMBER = 1e18  # no byte, nanosecond or step of ours is so far out
_LATEST = 1e12  # seconds
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MANY_DIGITS = re.compile(rb"\d{19}|[eE]\+?\d\d")


class Room:
    """What the lines of one record may still cost: some kilobytes of a hostile one could fill the memory otherwise."""

    def __init__(self, text: int = _MOST_TEXT, values: int = _MOST_VALUES) -> None:
        self.text, self.values = text, values
        self.full = False

    def takes(self, piece: bytes) -> bool:
        """Whether there is room for a line, by what it will be in memory; from the first that is too much, no more."""
        # A text with one odd letter in it takes four bytes for each; what stands between line ends becomes a text.
        self.text -= len(piece) if piece.isascii() and b"\\u" not in piece else 4 * len(piece)
        self.values -= _A_LINE + sum(map(piece.count, (b",", b":", b"[", b"{", b"\\n")))
        self.values -= _AN_OBJECT * piece.count(b"{")
        self.full = self.full or self.text < 0 or self.values < 0
        return not self.full


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


def _near(text: str) -> float | int | None:
    try:
        found = int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:  # more digits than Python reads
        return None
    return found if -_MAX_NUMBER < found < _MAX_NUMBER else None


_QUICK = json.JSONDecoder(parse_constant=lambda _name: None)
_CAREFUL = json.JSONDecoder(parse_constant=lambda _name: None, parse_int=_near, parse_float=_near)


def loads(raw: bytes) -> Any:
    """JSON in which every number is finite and none is out of reach; what is not one of those becomes null."""
    decoder = _CAREFUL if _MANY_DIGITS.search(raw) else _QUICK
    found = decoder.decode(raw.decode("utf-8"))
    return _writable(found) if _SURROGATE.search(raw) else found


def _writable(value: Any) -> Any:
    """The same without halves of letters, which JSON can hold and no file or terminal can be sent."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list) else value


def parse(raw: bytes, room: Room | None = None) -> tuple[list[dict[str, Any]], int]:
    """The lines that are whole and for which there is room, and how many were not whole."""
    lines: list[dict[str, Any]] = []
    bad = 0
    room = room or Room()
    room.text -= 4 * raw.count(b"\n")  # a file of nothing but line ends costs the time to look through it
    room.full = room.full or room.text < 0
    # One at a time: a file of nothing but line ends must not fill the memory.
    for found in re.finditer(rb"[^\n]+", raw):
        if not found[0].strip():
            continue
        if not room.takes(found[0]):
            break
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
        line = loads(piece)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("k"), str):
        return None
    return line if _is_time(line.get("t")) and _is_time(line.get("m")) else None


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -_LATEST < value < _LATEST


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


def read_file(path: Path, room: Room | None = None) -> tuple[list[dict[str, Any]], int]:
    """All whole lines of a file, packed or not, and how many were not whole; a damaged end costs only itself."""
    try:
        raw, complete = load(path)
    except OSError:
        return [], 1
    lines, bad = parse(raw, room)
    return lines, bad if complete else max(bad, 1)


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
