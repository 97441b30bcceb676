"""Reads a script or a notebook as one text of Python, and knows where each of its lines came from."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tokenize
from dataclasses import dataclass, field
from typing import Any

MAX_CODE = 2_000_000
MAX_NOTEBOOK = 100_000_000
_MOST_VALUES = 2_000_000  # of JSON: pictures are long texts, tables of numbers are not kept as such

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Cell magics whose cell is Python all the same.
_PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%python", "%%skip")
_SHELL = re.compile(r"^\s*(?:[%!?]|[\w.]+\?+\s*$)|^\s*[\w, ]+=\s*[!%]\s*\w")


class CanNotRead(Exception):
    """A file that can't be checked; the message is for the user."""


@dataclass
class Source:
    """The Python of a file; for a notebook, its code cells one after the other."""

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    # For a notebook: where each cell's code starts (line of `text`, from 1), and the number of the cell, from 1.
    cells: list[tuple[int, int]] = field(default_factory=list)
    notebook: dict[str, Any] | None = None
    raw: bytes = b""

    @property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    def place(self, line: int) -> tuple[int | None, int]:
        """Give the cell and the line in it; no cell for a script."""
        for start, cell in reversed(self.cells):
            if line >= start:
                return cell, line - start + 1
        return None, line


def split_lines(text: str) -> list[str]:
    """Split where Python does, keeping the ends: not at form feeds or the separators of Unicode."""
    return _LINE.findall(text)


def read(path: str) -> Source:
    """Read a file from disk."""
    return parse_bytes(path, read_file(path)[0])


def read_file(path: str) -> tuple[bytes, os.stat_result]:
    """Give the bytes of a script or notebook, and what the file system said of it before it was read."""
    return _read(path, MAX_NOTEBOOK if path.endswith(".ipynb") else MAX_CODE)


def read_regular(path: str, most: int) -> bytes:
    """Give the bytes of a regular file of a sensible size: a pipe would never answer, a device never end."""
    return _read(path, most)[0]


def _read(path: str, most: int) -> tuple[bytes, os.stat_result]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise CanNotRead("it is not a regular file")
            raw = file.read(most + 1)
            size = max(len(raw), os.fstat(fd).st_size)
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        raise CanNotRead((getattr(error, "strerror", None) or str(error)).lower()) from None
    if len(raw) > most:
        raise CanNotRead(f"{size / 1e6:.1f} MB, more than the limit of {most / 1e6:.0f} MB")
    return raw, about


def parse_bytes(path: str, raw: bytes) -> Source:
    """Make a source of a file's bytes."""
    if path.endswith(".ipynb"):
        return _notebook(path, raw)
    if len(raw) > MAX_CODE:
        raise CanNotRead(f"{len(raw) / 1e6:.1f} MB of code, more than {MAX_CODE / 1e6:.0f} MB")
    if b"\0" in raw:
        raise CanNotRead("it has null bytes, so it is not Python code")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        bom = encoding == "utf-8-sig"
        text = raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        why = "bytes that are not UTF-8, and no coding line" if isinstance(error, UnicodeDecodeError) else str(error)
        raise CanNotRead(f"it can't be decoded: {why}") from None
    return Source(path, text, "utf-8" if bom else encoding, bom, raw=raw)


def _notebook(path: str, raw: bytes) -> Source:
    if len(raw) > MAX_NOTEBOOK:
        raise CanNotRead(f"{len(raw) / 1e6:.0f} MB, more than {MAX_NOTEBOOK / 1e6:.0f} MB")
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > _MOST_VALUES:
        raise CanNotRead(f"it holds more than {_MOST_VALUES:,} values: too many for a notebook")
    try:
        notebook = json.loads(raw.decode("utf-8-sig"))
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        sources = [
            (number, cell_source(cell)) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code"
        ]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError):
        raise CanNotRead("it is not a notebook: no JSON with cells") from None
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    line = 1
    for number, code in sources:
        quiet = without_magics(code)
        if not quiet.endswith(("\n", "\r")):
            quiet += "\n"
        starts.append((line, number))
        parts.append(quiet)
        line += len(split_lines(quiet))
    text = "".join(parts)
    if len(text) > MAX_CODE:
        raise CanNotRead(f"{len(text) / 1e6:.1f} MB of code, more than {MAX_CODE / 1e6:.0f} MB")
    return Source(path, text, cells=starts, notebook=notebook, raw=raw)


def cell_source(cell: dict[str, Any]) -> str:
    """Give the code of a cell, whichever way the notebook's version keeps it."""
    source = cell.get("source", cell.get("input", ""))
    return "".join(source) if isinstance(source, list) else str(source)


def without_magics(code: str) -> str:
    """Replace what only a notebook understands by nothing of the same length, so that columns stay."""
    lines = split_lines(code)
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(_PYTHON_MAGICS):
        return "".join(_blank(line) for line in lines)
    kept: list[str] = []
    open_magic = False
    for line in lines:
        if open_magic or (_SHELL.match(line) and not _inside_string(kept)):
            open_magic = line.rstrip().endswith("\\")
            kept.append(_blank(line, leave="pass"))
        else:
            kept.append(line)
    return "".join(kept)


def _inside_string(before: list[str]) -> bool:
    text = "".join(before)
    return text.count('"""') % 2 == 1 or text.count("'''") % 2 == 1


def _blank(line: str, leave: str = "") -> str:
    body = line.rstrip("\r\n")
    indent = len(body) - len(body.lstrip())
    return body[:indent] + leave + line[len(body) :]
