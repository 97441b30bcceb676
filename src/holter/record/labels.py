"""What people have written on a record: another name, tags, a note. Beside what was recorded, never in it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from holter.errors import HolterError, NotPermitted, UsageError
from holter.record import lines
from holter.units import count

FILE = "labels.json"
NAME_LETTERS, TAG_LETTERS, MOST_TAGS, NOTE_LETTERS = 100, 40, 20, 4_000
_MOST_BYTES = 64_000  # of the file; what is larger was not written here
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True)
class Labels:
    """Of one record; empty where nobody has written any."""

    name: str = ""  # instead of the one that the run was started with
    tags: tuple[str, ...] = ()
    note: str = ""


def read_labels(folder: Path) -> Labels:
    """Read what stands there; a file that makes no sense, whoever wrote it, is no labels."""
    try:
        text = lines.read_bytes(folder / FILE, _MOST_BYTES + 1)
        said = lines.loads(text) if len(text) <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return Labels()
    if not isinstance(said, dict):
        return Labels()
    tags = said.get("tags")
    return _cleaned(said.get("name"), tags if isinstance(tags, list) else (), said.get("note"))


def change_labels(folder: Path, change: Callable[[Labels], Labels]) -> Labels:
    """Read them, change them and write them whole or not at all; two who write at once wait for each other."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            about = os.fstat(descriptor)
            if about.st_uid != os.geteuid():  # root too: the owner could not read a file of root's
                raise NotPermitted(f"{folder.name} is another user's record", "Copy its folder, and write on the copy")
            _wait_for_others(descriptor)
            labels = change(read_labels(folder))
            labels = _cleaned(labels.name, labels.tags, labels.note)
            _write(folder, labels)
            os.utime(descriptor, ns=(about.st_atime_ns, about.st_mtime_ns))  # it tells when the run was last recorded
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _CLOSED:
            remedy = "Copy its folder, and write on the copy"
            raise NotPermitted(f"{folder.name} can't be written to: {error.strerror}", remedy) from None
        raise HolterError(f"{folder.name} can't be written to: {error.strerror}") from None
    return labels


def _wait_for_others(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        pass  # some network file systems lock no folders; then the last one to write wins


def _write(folder: Path, labels: Labels) -> None:
    descriptor, beside = tempfile.mkstemp(prefix=f".{FILE}-", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(labels), file)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, folder / FILE)
    except BaseException:
        os.unlink(beside)
        raise


def _cleaned(name: Any, tags: Iterable[Any], note: Any) -> Labels:
    """No control characters, no tag twice, nothing longer than a screen can show."""
    shown = dict.fromkeys(word for tag in tags if (word := tag_of(tag)))
    rows = note.splitlines() if isinstance(note, str) else []
    kept = "\n".join(_line(row, NOTE_LETTERS) for row in rows)[:NOTE_LETTERS].strip()
    return Labels(_line(name, NAME_LETTERS), tuple(shown)[:MOST_TAGS], kept)


def tagged(labels: Labels, add: Iterable[str], remove: Iterable[str] = ()) -> Labels:
    """The labels with these tags, and without those; raises UsageError where one can't be a tag or too many come up."""
    for tag in (*add, *remove):
        if tag_of(tag) != "-".join(tag.split()) or not tag.strip():
            raise UsageError(f"{tag[:60]!r} can't be a tag", f"A tag has 1 to {TAG_LETTERS} letters that can be seen")
    gone = {tag_of(tag) for tag in remove}
    kept = [tag for tag in dict.fromkeys((*labels.tags, *map(tag_of, add))) if tag not in gone]
    if len(kept) > MOST_TAGS:
        raise UsageError(f"that makes {count(len(kept))} tags; {MOST_TAGS} fit", "Take some away first")
    return replace(labels, tags=tuple(kept))


def noted(labels: Labels, note: str) -> Labels:
    """The labels with this note, or with none; raises UsageError where it is too long."""
    if len(note) > NOTE_LETTERS:
        raise UsageError(f"the note has {count(len(note))} letters; {count(NOTE_LETTERS)} fit", "Write less")
    return replace(labels, note=note)


def tag_of(said: Any) -> str:
    """A tag is one word."""
    return "-".join(_line(said, TAG_LETTERS).split())


def _line(said: Any, letters: int) -> str:
    if not isinstance(said, str):
        return ""
    return "".join(letter for letter in said[: 4 * letters] if letter.isprintable()).strip()[:letters]
