"""A cache has no bound, and what it is fed has none either.

What it does: finds `cache()` in memory of a tf.data pipeline after `repeat()` or over a generator that never ends, and
an unbounded `lru_cache` on what loads the samples of a dataset.
Why it halts or slows a run: the cache keeps all that passes, and it never stops passing: memory grows until the kernel
kills the run, often in the middle of the first epoch.
Example:
    ds = ds.map(decode).repeat().cache().batch(32)
Instead:
    ds = ds.map(decode).cache().repeat().batch(32)
When the fix is safe: never by itself: what fits into memory depends on the machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.module import Function, Module
from holter.source.pipelines import endless_caches
from holter.source.values import argument

CODE = "HLT403"
CAUSE = "leak.cache-unbounded"
NEEDS = (".cache()", "lru_cache", "functools")
AND_NEEDS = (".cache(", "Dataset", "Sequence")
CURES = (Cure("cache to a file, or leave it out and prefetch", "- .cache()\n+ .cache(filename)"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at caches of pipelines, and of functions that datasets call."""
    for call, fed in endless_caches(module):
        yield Hit(call, f"this cache keeps everything that passes, and {fed} never ends", "error")
    for function in module.functions:
        if _unbounded(module, function) and _loads(module, function):
            cure = Cure("keep it on disk: np.memmap, safetensors, or a file for each sample")
            claim = f"`{function.name}` keeps every sample that was ever loaded, in each worker"
            yield Hit(function.decorator_list[0], claim, "warning", cure)


def _unbounded(module: Module, function: Function) -> bool:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        full = module.qualified(target)
        if full == "functools.cache":
            return True
        if full == "functools.lru_cache" and isinstance(decorator, ast.Call):
            most = argument(decorator, "maxsize", 0)
            if isinstance(most, ast.Constant) and most.value is None:
                return True
    return False


def _loads(module: Module, function: Function) -> bool:
    """Whether a cached method is where a dataset gets its samples."""
    owner = module.class_of(function)
    return (
        owner is not None
        and module.kinds.of_class(owner) == "dataset"
        and (function.name == "__getitem__" or bool(function.args.args[1:]))
    )
