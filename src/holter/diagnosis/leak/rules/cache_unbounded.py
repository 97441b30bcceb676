"""A cache, a memo or a queue holds more than there is room for.

What it sees: a dict that is looked up by key, an `lru_cache`, a queue or a mutable default that grows with the memory;
or, in a script for TensorFlow, growth during the first pass, or before its first step, where `cache()`, a large
`shuffle()` or a large `prefetch()` is asked for.
Why it matters: it grows by the size of all that is read, and the dataset is larger than memory.
May be confused with: results that pile up and are never looked up; a cache that fits, which is full after one epoch.
How sure: established when what it holds is most of the measured growth; supported when the trend is clear and the cache
is named; a hypothesis where only the script says so.
Cure: bound it, cache to disk, or stream.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import LeakCause, leak_cause
from holter.diagnosis.leak.library_cache import LibraryCache, cache_call
from holter.diagnosis.leak.retained import Holder, entries_that_fit
from holter.diagnosis.leak.retained_line import line_of
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.memory_looks import memory_looks
from holter.finding import Cure, Ending, Finding

CAUSE = "leak.cache-unbounded"

_PIPELINE = re.compile(r"/tensorflow/python/data/|/keras/(?:src/)?trainers/|/keras/(?:src/)?backend/tensorflow/trainer")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the cache, how much it holds, and its line."""
    found = leak_cause(record, ending)
    if found is None:
        return _before_training(record, ending)
    if found.cause != CAUSE:
        return None
    if found.cache is not None:
        cache = found.cache
        never = f", and {cache.fed} never ends" if cache.fed else ""
        claim = f"`{cache.call}()` on line {cache.culprit.line} keeps what was read in memory{never}: {found.words}"
        return Finding(CAUSE, found.grade, claim, found.evidence, cache.culprit, _of_library(cache), found.forecast)
    holder = found.holder
    if holder is None:
        return None
    culprit, _statement = line_of(record, holder)
    named = holder.where if holder.scope in ("cache", "default") else f"the cache {holder.where}"
    claim = f"{named} is never emptied ({holder.entries}): {found.words}"
    cures = _cures(found, holder, culprit.code if culprit is not None else "")
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures, found.forecast)


def _before_training(record: RecordLike, ending: Ending) -> Finding | None:
    """A buffer that is filled before it gives its first element: memory ran out while the pipeline was being read."""
    ran_out = exhaustion_of(record, ending)
    if ran_out is None or ran_out.progress.step or ran_out.on_device:
        return None
    stacks = [look.frames for look in memory_looks(record)]
    reading = [frames for frames in stacks if any(_PIPELINE.search(frame.file) for frame in frames)]
    cache = cache_call(record) if reading and len(reading) > len(stacks) / 2 else None
    if cache is None or cache.call == "cache":
        return None
    claim = f"`{cache.call}()` on line {cache.culprit.line} fills a buffer in memory first: {ran_out.words}"
    return Finding(CAUSE, "supported", claim, ran_out.evidence, cache.culprit, _of_library(cache))


def _cures(found: LeakCause, holder: Holder, code: str) -> tuple[Cure, ...]:
    limit = found.leak.curve.limit if found.leak is not None else None
    fits = entries_that_fit(holder, limit)
    how = ""
    if holder.scope == "cache":
        # The script's own name for it: `functools` itself may not be imported.
        name = code.partition("(")[0].replace("@functools.cache", "@functools.lru_cache")
        how = f"- {code}\n+ {name}(maxsize={fits})" if name.endswith("lru_cache") else ""
    first = Cure(f"bound it: {fits:,} entries take about a quarter of the memory", how, "equivalent")
    return (first, Cure("keep it on disk: np.memmap, safetensors, or a file for each sample", "", "equivalent"))


def _of_library(cache: LibraryCache) -> tuple[Cure, ...]:
    code = cache.culprit.code
    if cache.fed:
        return (Cure("call cache() ahead of repeat(): it is full when all was read once", "", "equivalent"),)
    if cache.call == "cache":
        to_file = code.replace(".cache()", '.cache("dataset.cache")')
        how = f"- {code}\n+ {to_file}" if to_file != code else ""
        return (Cure("cache to a file, or leave it out and prefetch", how, "equivalent"),)
    if cache.call == "prefetch":
        return (Cure("let it choose how many to keep ready: prefetch(tf.data.AUTOTUNE)", "", "equivalent"),)
    return (Cure("a smaller shuffle buffer, or shuffle file names instead of samples", "", "changed"),)
