"""Caches and buffers of a library's own that the script asks for: their memory belongs to no Python object."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.core.epochs import epochs_of
from holter.diagnosis.core.evidence import user_files
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.leaking import Leak
from holter.finding import Culprit
from holter.record.events.agent import Adapter
from holter.source.lines import calls_of, culprit_at, tree_of
from holter.source.module import Module
from holter.source.pipelines import endless_caches

_FILLING = re.compile(r"Filling up shuffle buffer \(this may take a while\): (\d+) of (\d+)")


# A few elements ahead are what `prefetch` is for; a buffer for shuffling is meant to hold thousands.
_LARGE_PREFETCH = 64
_LARGE_SHUFFLE = 2000


@dataclass(frozen=True)
class LibraryCache:
    """The call that asks for it: `cache`, `shuffle` or `prefetch` of tf.data."""

    call: str
    culprit: Culprit
    fed: str = ""  # what never ends, where that is so


@once
def library_cache(record: RecordLike, leak: Leak) -> LibraryCache | None:
    """Find what a script asks tf.data to keep: `.cache()` without a file, a large `.shuffle()` or `.prefetch()`."""
    if not any(event.framework == "tensorflow" for event in record.of(Adapter)):
        return None
    endless = _endless(record)
    # A cache is full after one pass, if its input has an end: growth that goes on through several is something else.
    if endless is not None or len(epochs_of(record, leak.progress.pid)) > 2:
        return endless
    return cache_call(record)


def _endless(record: RecordLike) -> LibraryCache | None:
    for file in user_files(record):
        lines = record.source(file)
        tree = tree_of(lines)
        for call, fed in endless_caches(Module(tree, "\n".join(lines), file)) if tree is not None else ():
            return LibraryCache("cache", culprit_at(file, lines, call.func.end_lineno or call.lineno), fed)
    return None


def cache_call(record: RecordLike) -> LibraryCache | None:
    """Find the call in the kept sources."""
    filling = _FILLING.search(record.output)
    found: list[tuple[int, LibraryCache]] = []
    for file in user_files(record):
        lines = record.source(file)
        for line, name in calls_of(lines, ("cache", "shuffle", "prefetch")):
            rank = _rank(name, lines[line - 1], bool(filling))
            if rank is not None:
                found.append((rank, LibraryCache(name, culprit_at(file, lines, line))))
    return min(found, key=lambda one: one[0])[1] if found else None


def _rank(name: str, code: str, filling: bool) -> int | None:
    """Tell how well a call explains memory that fills: lower is better, None not at all."""
    if name == "cache":
        return 1 if re.search(r"\.cache\(\s*\)", code) else None
    asked = re.search(rf"\.{name}\((?:\s*buffer_size\s*=)?\s*([^,)]*)", code)
    size = asked[1].replace("_", "").strip() if asked else ""
    if name == "shuffle":
        small = size.isdigit() and int(size) < _LARGE_SHUFFLE
        return 0 if filling else None if small else 3
    return 2 if size.isdigit() and int(size) >= _LARGE_PREFETCH else None
