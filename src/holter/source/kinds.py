"""What an expression is to a training: a model, an optimizer, a loader, a dataset; nothing where that is not sure."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Literal

from holter.source.bindings import dotted

if TYPE_CHECKING:
    from holter.source.module import Module

Kind = Literal[
    "torch-model", "keras-model", "torch-optimizer", "keras-optimizer", "criterion", "loader", "dataset", "tf-dataset",
    "scaler", "trainer", "compiled", "iterator", "",
]  # fmt: skip

_CONSTRUCTORS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"^keras\.(?:models\.)?(?:Sequential|Model|clone_model|load_model)$"), "keras-model"),
    (re.compile(r"^keras\.(?:Sequential|applications\..*\.?[A-Z]\w+)$"), "keras-model"),
    (re.compile(r"^keras\.optimizers\.(?:legacy\.|experimental\.)?[A-Z]\w+$"), "keras-optimizer"),
    (re.compile(r"^keras\.losses\.[A-Z]\w+$"), "criterion"),
    (re.compile(r"^torch\.nn\.(?:modules\.\w+\.)?\w*Loss$"), "criterion"),
    (re.compile(r"^torch\.nn\.(?:modules\.\w+\.|parallel\.)?(?!Parameter|Buffer|Module(?:List|Dict)$)[A-Z]\w+$"),
     "torch-model"),
    (re.compile(r"^torchvision\.models\.\w+(?:\.\w+)*$|^timm\.create_model$|^segmentation_models_pytorch\.[A-Z]\w+$"),
     "torch-model"),
    (re.compile(r"^transformers\.(?!TF|Flax|AutoTokenizer|AutoConfig)\w*(?:Model|For)\w*\.from_(?:pretrained|config)$"),
     "torch-model"),
    (re.compile(r"^torch\.optim\.(?!Optimizer$)[A-Z]\w+$"), "torch-optimizer"),
    (re.compile(r"^torch\.utils\.data\.DataLoader$|^torch_geometric\.(?:loader|data)\.DataLoader$"), "loader"),
    (re.compile(r"^torchvision\.datasets\.[A-Z]\w+$|^torch\.utils\.data\.\w*Dataset$"), "dataset"),
    (re.compile(r"^tensorflow\.data\.(?:Dataset\.\w+|TFRecordDataset|TextLineDataset|FixedLengthRecordDataset)$"),
     "tf-dataset"),
    (re.compile(r"^keras\.(?:utils|preprocessing)\.\w*dataset_from_directory$"), "tf-dataset"),
    (re.compile(r"^torch\.(?:cuda\.)?amp\.GradScaler$"), "scaler"),
    (re.compile(r"^lightning\.(?:trainer\.)?Trainer$|^transformers\.(?:Seq2Seq)?Trainer$"), "trainer"),
    (re.compile(r"^tensorflow\.function$|^jax\.p?jit$"), "compiled"),
)  # fmt: skip

# Methods that give back what they were called on.
_SAME = frozenset(
    ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "apply", "xpu")
)
_DATASET = frozenset(
    (
        *("map", "batch", "shuffle", "prefetch", "cache", "repeat", "take", "skip", "filter", "padded_batch", "apply"),
        *("interleave", "with_options", "unbatch", "enumerate", "shard", "flat_map", "concatenate", "window"),
        *("rebatch", "ragged_batch", "snapshot"),
    )
)
_WRAPPERS = re.compile(r"^torch\.compile$|\.(?:DataParallel|DistributedDataParallel|FullyShardedDataParallel)$")
_BASES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"^torch\.nn\.(?:modules\.)?(?:module\.)?(?:Module|Sequential)$"), "torch-model"),
    (re.compile(r"^lightning\.(?:core\.(?:module\.)?)?LightningModule$"), "torch-model"),
    (re.compile(r"^keras\.(?:models\.|engine\.training\.)?(?:Model|Sequential)$"), "keras-model"),
    (re.compile(r"^torch\.utils\.data\.(?:\w+\.)?(?:Dataset|IterableDataset)$"), "dataset"),
    (re.compile(r"^keras\.utils\.(?:Sequence|PyDataset)$"), "dataset"),
)


class Kinds:
    """Follows assignments, wrappers and functions of the same file; gives up early rather than guess."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._known: dict[ast.AST, Kind] = {}
        self._classes: dict[ast.ClassDef, Kind] = {}
        self._named: dict[int, Kind] = {}  # by the bindings, which live as long as the file
        self._open: set[ast.AST] = set()

    def of(self, node: ast.expr | None) -> Kind:
        if node is None:
            return ""
        known = self._known.get(node)
        if known is not None:
            return known
        if node in self._open or len(self._open) > 40:
            return ""
        self._open.add(node)
        try:
            found = self._find(node)
        finally:
            self._open.discard(node)
        self._known[node] = found
        return found

    def _find(self, node: ast.expr) -> Kind:
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.named(node, dotted(node))
        if isinstance(node, ast.IfExp):
            return self.of(node.body) or self.of(node.orelse)
        if isinstance(node, ast.Await):
            return self.of(node.value)
        return ""

    def named(self, node: ast.AST, name: str) -> Kind:
        """Give what a name is at a node: what all its simple assignments agree on."""
        if not name:
            return ""
        found = self.module.bound(node, name)
        if id(found) in self._named:
            return self._named[id(found)]
        kinds = {self.of(one.value) for one in found if one.how in ("set", "with")} - {""}
        if not kinds and [one.how for one in found] == ["argument"]:
            kinds = self._given(found[0].node, name)
        kind: Kind = kinds.pop() if len(kinds) == 1 else ""
        if not self._open:  # else something that is still being looked at may be missing in it
            self._named[id(found)] = kind
        return kind

    def _given(self, argument: ast.AST, name: str) -> set[Kind]:
        """Give what the calls of a function in this file hand to one of its arguments, where all say the same."""
        function = self.module.parents.get(self.module.parents.get(argument, argument))
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return set()
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if name in names and isinstance(self.module.parents.get(function), ast.ClassDef):
            names = names[1:]  # `self`
        kinds: set[Kind] = set()
        for call in self.module.callers(function):
            given = next((one.value for one in call.keywords if one.arg == name), None)
            at = names.index(name) if name in names else len(call.args)
            if given is None and at < len(call.args):
                given = call.args[at]
            kinds.add(self.of(given))
        return kinds if "" not in kinds else set()

    def _called(self, call: ast.Call) -> Kind:
        full = self.module.qualified(call.func)
        if full:
            for pattern, kind in _CONSTRUCTORS:
                if pattern.search(full):
                    return kind
            if _WRAPPERS.search(full) and call.args:
                return self.of(call.args[0]) or ("torch-model" if "Parallel" in full else "")
            if full in ("functools.partial",):
                return ""
        if isinstance(call.func, ast.Attribute):
            inner = call.func.value
            if call.func.attr in _SAME or call.func.attr in _DATASET:
                kind = self.of(inner)
                if kind in ("torch-model", "criterion") and call.func.attr in _SAME:
                    return kind
                if kind == "tf-dataset" and call.func.attr in _DATASET:
                    return kind
        if isinstance(call.func, ast.Name):
            owner = next((one for one in self.module.classes if one.name == call.func.id), None)
            if owner is not None:
                return self.of_class(owner)
        function = self.module.callee(call)
        return self._returned(function) if function is not None else ""

    def _returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Kind:
        kinds: set[Kind] = set()
        for node in self.module.within(function):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                return "iterator"
            if isinstance(node, ast.Return) and node.value is not None:
                kinds.add(self.of(node.value))
        return kinds.pop() if len(kinds) == 1 else ""

    def of_class(self, owner: ast.ClassDef) -> Kind:
        """Give what an instance of a class of this file is, by its bases."""
        if owner in self._classes:
            return self._classes[owner]
        self._classes[owner] = ""
        for base in owner.bases:
            full = self.module.qualified(base)
            kind: Kind = next((kind for pattern, kind in _BASES if pattern.search(full)), "") if full else ""
            if not kind and isinstance(base, ast.Name):
                above = next((one for one in self.module.classes if one.name == base.id and one is not owner), None)
                kind = self.of_class(above) if above is not None else ""
            if kind:
                self._classes[owner] = kind
                break
        return self._classes[owner]
