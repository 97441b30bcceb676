"""Applies the edits of safe fixes: every byte outside of them stays what it was."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holter.check.problem import Change, Edit
from holter.check.source import Source, cell_source, parse_bytes, split_lines


class Unfixable(Exception):
    """A file that can't be written back as it was; the message is for the user."""


def applied(source: Source, fixes: list[tuple[Edit, ...]]) -> tuple[Source, int]:
    """Give the source with as many fixes as do not touch each other, and how many those were."""
    chosen: list[Edit] = []
    count = 0
    for edits in fixes:
        new = [edit for edit in edits if edit not in chosen]
        if edits and not any(_overlap(one, other) for one in new for other in chosen):
            chosen += new
            count += 1
    if not chosen:
        return source, 0
    if source.notebook is not None:
        return parse_bytes(source.path, _notebook(source, chosen)), count
    text = "".join(_edited(source.lines, chosen))
    raw = text.encode(source.encoding)
    if source.bom:
        raw = b"\xef\xbb\xbf" + raw
    return replace(source, text=text, raw=raw), count


def write_back(change: Change) -> None:
    """Put a mended file in the place of the old one, whole or not at all: written beside it, then renamed."""
    real = os.path.realpath(change.path)  # a link stays one
    made = ""
    try:
        about = os.stat(real)
        if about.st_nlink > 1:
            raise Unfixable(f"it has {about.st_nlink} hard links, and a new file would break them")
        fd, made = tempfile.mkstemp(prefix=".holter-", dir=os.path.dirname(real))
        with open(fd, "wb") as file:
            file.write(change.after)
            file.flush()
            new = os.fstat(fd)
            if (about.st_uid, about.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(fd, about.st_uid, about.st_gid)
            os.fchmod(fd, stat.S_IMODE(about.st_mode))
            os.fsync(fd)
        with open(real, "rb") as file:
            if file.read() != change.before:
                raise Unfixable("another program changed it meanwhile")
        os.replace(made, real)
        made = ""
    except OSError as error:
        raise Unfixable(error.strerror or str(error)) from None
    finally:
        if made:
            with contextlib.suppress(OSError):
                os.unlink(made)


def _overlap(one: Edit, other: Edit) -> bool:
    return (one.start < other.end and other.start < one.end) or one.start == other.start


def _edited(lines: list[str], edits: list[Edit]) -> list[str]:
    coded = [line.encode() for line in lines]
    ending = b"\r\n" if coded and coded[0].endswith(b"\r\n") else b"\n"
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        (first, at), (last, until) = edit.start, edit.end
        text = edit.text.encode().replace(b"\n", ending)
        coded[first - 1 : last] = [coded[first - 1][:at] + text + coded[last - 1][until:]]
        coded[first:first] = [b""] * (last - first)  # keep the numbers of the lines above valid
    return [line.decode() for line in coded]


def _notebook(source: Source, edits: list[Edit]) -> bytes:
    """Write the notebook anew, if writing it unchanged gives the very bytes that it has."""
    assert source.notebook is not None
    write = _writer(source.raw, source.notebook)
    cells = source.notebook.get("cells") or source.notebook["worksheets"][0]["cells"]
    for start, number in source.cells:
        cell = cells[number - 1]
        lines = split_lines(cell_source(cell))
        here = [
            Edit((edit.start[0] - start + 1, edit.start[1]), (edit.end[0] - start + 1, edit.end[1]), edit.text)
            for edit in edits
            if source.place(edit.start[0])[0] == number
        ]
        if here:
            text = "".join(_edited(lines, here))
            key = "source" if "source" in cell else "input"
            cell[key] = split_lines(text) if isinstance(cell[key], list) else text
    return write(source.notebook)


def _writer(raw: bytes, notebook: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    end = "\n" if raw.endswith(b"\n") else ""
    for ascii_only in (False, True):
        for indent in (1, 2, 4, 0, None):

            def write(content: dict[str, Any], indent: int | None = indent, ascii_only: bool = ascii_only) -> bytes:
                return (json.dumps(content, indent=indent, ensure_ascii=ascii_only) + end).encode()

            if write(notebook) == raw:
                return write
    raise Unfixable("the layout of its JSON can't be kept byte for byte")
