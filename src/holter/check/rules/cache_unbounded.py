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
from holter.source.bindings import called_on, dotted
from holter.source.module import Function, Module
from holter.source.pipelines import pipeline_of
from holter.source.values import argument

CODE = "HLT403"
CAUSE = "leak.cache-unbounded"
NEEDS = r"\.cache\(\)|lru_cache|functools"
CURES = (Cure("cache to a file, or leave it out and prefetch", "- .cache()\n+ .cache(filename)"),)


def examine(module: Module) -> Iterator[Hit]:
    """Look at caches of pipelines, and of functions that datasets call."""
    for call, owner in module.calls_of("cache"):
        found = pipeline_of(module, owner) if not call.args and not call.keywords else None
        if found is None:
            continue
        endless = [at for at, one in enumerate(found.calls) if _repeats(one)]
        if endless and "take" not in found.methods[endless[-1] :]:
            yield Hit(call, "this cache keeps everything that passes, and after repeat() it never ends", "error")
        elif found.root_call is not None and _endless(module, found.root_call) and "take" not in found.methods:
            yield Hit(call, "this cache keeps everything that passes, and the generator never ends", "error")
    for function in module.functions:
        if _unbounded(module, function) and _loads(module, function):
            cure = Cure("keep it on disk: np.memmap, safetensors, or a file for each sample")
            claim = f"`{function.name}` keeps every sample that was ever loaded, in each worker"
            yield Hit(function.decorator_list[0], claim, "warning", cure)


def _repeats(call: ast.Call) -> bool:
    return called_on(call, "repeat") is not None and not call.args and not call.keywords


def _endless(module: Module, root: ast.Call) -> bool:
    if not dotted(root.func).endswith("from_generator"):
        return False
    given = argument(root, "generator", 0)
    function = next((one for one in module.functions if given is not None and one.name == dotted(given)), None)
    if function is None:
        return False
    for node in module.within(function):
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            inner = list(module.within(node))
            if not any(isinstance(one, (ast.Break, ast.Return)) for one in inner):
                return any(isinstance(one, ast.Yield) for one in inner)
    return False


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
