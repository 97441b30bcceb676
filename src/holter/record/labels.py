"""What people have written on a record: another name, tags, a note. Beside the record, never in it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "labels.json"
MOST_BYTES = 64_000  # of the file; what is larger was not written here
NAME_LETTERS, TAG_LETTERS, MOST_TAGS, NOTE_LETTERS = 100, 40, 20, 4_000


@dataclass(frozen=True)
class Labels:
    """Of one record; empty where nobody has written any."""

    name: str = ""  # instead of the one that the run was started with
    tags: tuple[str, ...] = ()
    note: str = ""


def read_labels(folder: Path) -> Labels:
    """Read what stands there; a file that makes no sense, whoever wrote it, is no labels."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            text = file.read(MOST_BYTES + 1)
        said = json.loads(text) if len(text) <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return Labels()
    if not isinstance(said, dict):
        return Labels()
    tags = said.get("tags")
    return cleaned(said.get("name"), tags if isinstance(tags, list) else (), said.get("note"))


def write_labels(folder: Path, labels: Labels) -> None:
    """Write them whole or not at all."""
    labels = cleaned(labels.name, labels.tags, labels.note)
    descriptor, beside = tempfile.mkstemp(prefix=f".{FILE}-", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(labels), file)
        os.replace(beside, folder / FILE)
    except BaseException:
        os.unlink(beside)
        raise


def cleaned(name: Any, tags: Iterable[Any], note: Any) -> Labels:
    """No control characters, no tag twice, nothing longer than a screen can show."""
    shown = dict.fromkeys(word for tag in tags if (word := _line(tag, TAG_LETTERS).replace(" ", "-")))
    lines = note.splitlines() if isinstance(note, str) else []
    kept = "\n".join(_line(line, NOTE_LETTERS) for line in lines)[:NOTE_LETTERS].strip()
    return Labels(_line(name, NAME_LETTERS), tuple(shown)[:MOST_TAGS], kept)


def _line(said: Any, letters: int) -> str:
    if not isinstance(said, str):
        return ""
    return "".join(letter for letter in said if letter.isprintable()).strip()[:letters]
