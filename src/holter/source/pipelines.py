"""tf.data pipelines: the calls that a dataset went through, across assignments to the same name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from holter.source.bindings import called_on, dotted
from holter.source.module import Module
from holter.source.values import argument


@dataclass(frozen=True)
class Pipeline:
    """A dataset's root constructor and the calls after it, in order; whole where every part could be seen."""

    root: str
    root_call: ast.Call | None
    calls: tuple[ast.Call, ...]
    whole: bool

    @property
    def methods(self) -> list[str]:
        return [call.func.attr for call in self.calls if isinstance(call.func, ast.Attribute)]


def pipeline_of(module: Module, node: ast.expr, depth: int = 12) -> Pipeline | None:
    """Follow a dataset back to where it was made; None for what is no tf.data dataset."""
    if depth == 0:
        return None
    if isinstance(node, ast.Call):
        full = module.qualified(node.func)
        if (
            full.startswith("tensorflow.data.")
            or full.endswith("dataset_from_directory")
            or full == "tensorflow_datasets.load"
        ):
            return Pipeline(full, node, (), True)
        if isinstance(node.func, ast.Attribute) and not full:
            inner = pipeline_of(module, node.func.value, depth - 1)
            if inner is not None:
                return Pipeline(inner.root, inner.root_call, (*inner.calls, node), inner.whole)
        function = module.callee(node)
        if function is not None:
            returned = [one.value for one in module.within(function) if isinstance(one, ast.Return) and one.value]
            if len(returned) == 1:
                inner = pipeline_of(module, returned[0], depth - 1)
                if inner is not None:
                    return inner
        return None
    if isinstance(node, ast.Name):
        bound = module.bindings.last(node, node.id)
        if bound is None or bound.how != "set" or bound.value is None:
            return None
        found = pipeline_of(module, bound.value, depth - 1)
        if found is None:
            return None
        # Another assignment to the name in a branch may add or leave out a part.
        whole = found.whole and not module.bindings.branched(node, node.id)
        return Pipeline(found.root, found.root_call, found.calls, whole)
    return None


def mapped(module: Module, call: ast.Call) -> ast.AST | None:
    """Give the function that a `map` applies: one of this file, or a lambda."""
    if not call.args:
        return None
    given = call.args[0]
    if isinstance(given, ast.Lambda):
        return given
    name = dotted(given).rpartition(".")[2]
    found = [one for one in module.functions if one.name == name]
    return found[0] if len(found) == 1 else None


def endless_caches(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Give each `cache()` in memory whose input never comes to an end, and what it is fed with."""
    for call, owner in module.calls_of("cache"):
        found = pipeline_of(module, owner) if not call.args and not call.keywords else None
        fed = _never_ends(module, found) if found is not None else ""
        if fed:
            yield call, fed


def _never_ends(module: Module, found: Pipeline, depth: int = 3) -> str:
    """Say what hands on elements for ever; empty where a pipeline comes to an end, or may."""
    endless = [at for at, one in enumerate(found.calls) if _repeats(one)]
    if "take" in found.methods[endless[-1] if endless else 0 :] or found.root_call is None:
        return ""
    if endless:
        return "what repeat() hands on"
    if found.root.endswith(".Dataset.counter"):
        return "the counter"
    if found.root.endswith(".Dataset.zip") and depth:
        given = [part for one in found.root_call.args for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
        parts = [pipeline_of(module, one) for one in given]
        # It ends with the first of them that does.
        fed = [_never_ends(module, part, depth - 1) if part is not None else "" for part in parts]
        return fed[0] if fed and all(fed) else ""
    return "the generator" if _yields_for_ever(module, found.root_call) else ""


def _repeats(call: ast.Call) -> bool:
    return called_on(call, "repeat") is not None and not call.args and not call.keywords


def _yields_for_ever(module: Module, root: ast.Call) -> bool:
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
