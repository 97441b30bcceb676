"""Caches and buffers of a library's own that the script asks for: their memory belongs to no Python object."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.epochs import epochs_of
from holter.diagnosis.examined import once
from holter.diagnosis.fields import text
from holter.diagnosis.leaking import Leak
from holter.diagnosis.rule import RecordLike
from holter.diagnosis.script import calls_of, culprit_at
from holter.finding import Culprit

_FILLING = re.compile(r"Filling up shuffle buffer \(this may take a while\): (\d+) of (\d+)")


@dataclass(frozen=True)
class LibraryCache:
    """The call that asks for it: `cache` or `shuffle` of tf.data."""

    call: str
    culprit: Culprit


@once
def library_cache(record: RecordLike, leak: Leak) -> LibraryCache | None:
    """Find a `.cache()` without a file or a large `.shuffle()` in a script of TensorFlow's, where growth fits it."""
    if not any(text(event, "framework") == "tensorflow" for event in record.events_of("adapter")):
        return None
    # A cache is full after one pass: growth that goes on through several is something else.
    if len(epochs_of(record, leak.progress.pid)) > 2:
        return None
    return cache_call(record)


def cache_call(record: RecordLike) -> LibraryCache | None:
    """Find the call in the kept sources."""
    filling = _FILLING.search(record.output)
    for file in _files(record):
        lines = record.source(file)
        for line, name in calls_of(lines, ("cache", "shuffle")):
            code = lines[line - 1]
            if (name == "cache" and re.search(r"\.cache\(\s*\)", code)) or (name == "shuffle" and filling):
                return LibraryCache(name, culprit_at(file, lines, line))
    return None


def _files(record: RecordLike) -> list[str]:
    named = {text(event, "file"): None for kind in ("guest", "made", "trace") for event in record.events_of(kind)}
    return [file for file in named if file]
