"""A parsed script as the rules see it: its calls, loops and functions, what names stand for, and which loops train."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from pathlib import PurePath
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from holter.source.bindings import BINDERS, Binding, Bindings, called_on, dotted
from holter.source.imports import Imports
from holter.source.kinds import Kinds
from holter.source.training import Training

Loop = ast.For | ast.AsyncFor | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Nodes with nothing below them.
_LEAVES = frozenset((ast.Name, ast.Constant))
# Fields with texts and marks: how a node is used is no node of its own.
_PLAIN = frozenset(("ctx", "op", "ops", "id", "attr", "type_comment", "kind"))
# The fields of each kind of node that may hold others.
_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _PLAIN)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}

P = ParamSpec("P")
T = TypeVar("T")


def once(read: Callable[Concatenate[Module, P], T]) -> Callable[Concatenate[Module, P], T]:
    """Answer a question about a file once: asked anew for each of its loops, it takes the square of the time."""

    @wraps(read)
    def kept(module: Module, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (read, args, tuple(kwargs.items()))
        if key not in module.memo:
            module.memo[key] = read(module, *args, **kwargs)
        return cast(T, module.memo[key])

    return kept


def is_test(path: str) -> bool:
    """Whether a file is one of tests, by its name."""
    name = PurePath(path).name
    return name.startswith("test_") or name.endswith(("_test.py", "_tests.py")) or name == "conftest.py"


class Module:
    """One file's syntax tree with an index: rules look up, they do not walk."""

    def __init__(self, tree: ast.Module, text: str, path: str) -> None:
        self.tree = tree
        self.text = text
        self.path = path
        self.memo: dict[object, Any] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: list[ast.Call] = []
        self.loops: list[Loop] = []
        self.functions: list[Function] = []
        self.classes: list[ast.ClassDef] = []
        self.withs: list[ast.With | ast.AsyncWith] = []
        self.tries: list[ast.Try] = []
        self.products: list[ast.BinOp] = []
        self.imports = Imports()
        self.bindings = Bindings(self)
        kept_in: dict[type[ast.AST], list[Any]] = {
            ast.Call: self.calls,
            ast.For: self.loops,
            ast.AsyncFor: self.loops,
            ast.While: self.loops,
            ast.FunctionDef: self.functions,
            ast.AsyncFunctionDef: self.functions,
            ast.ClassDef: self.classes,
            ast.With: self.withs,
            ast.AsyncWith: self.withs,
            ast.Try: self.tries,
            ast.BinOp: self.products,
        }
        for node in self._everything(tree):
            kind = node.__class__
            if kind in kept_in:
                kept_in[kind].append(node)
            if kind in BINDERS:
                self.bindings.note(node)
            elif kind is ast.Import or kind is ast.ImportFrom:
                self.imports.note(cast("ast.Import | ast.ImportFrom", node))
        for kept in kept_in.values():
            kept.sort(key=lambda node: (node.lineno, node.col_offset))
        self.bindings.settle()

    def _everything(self, tree: ast.Module) -> Iterator[ast.AST]:
        """Give every node that may hold others, and note what each stands in; this is most of a check's time."""
        stack: list[ast.AST] = [tree]
        parents = self.parents
        while stack:
            node = stack.pop()
            yield node
            for name in _FIELDS[node.__class__]:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for one in cast("list[object]", value):
                        if isinstance(one, ast.AST):
                            parents[one] = node
                            if one.__class__ not in _LEAVES:
                                stack.append(one)
                elif isinstance(value, ast.AST):
                    parents[value] = node
                    if value.__class__ not in _LEAVES:
                        stack.append(value)

    def release(self) -> None:
        """Let go of the tree and all that is known of it, now: what refers to itself waits for Python's collection."""
        self.__dict__.clear()

    # -- where a node stands ------------------------------------------------------------------------------------------

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Give what a node stands in, from the inside out."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    @once
    def function_of(self, node: ast.AST) -> Function | None:
        return next((above for above in self.ancestors(node) if isinstance(above, FUNCTIONS)), None)

    @once
    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((above for above in self.ancestors(node) if isinstance(above, ast.ClassDef)), None)

    @once
    def scope_of(self, node: ast.AST) -> ast.AST:
        """Give the function, or the module, whose names a node sees first."""
        inner = node
        for above in self.ancestors(node):
            if isinstance(above, (*FUNCTIONS, ast.Lambda)):
                # A decorator or a default belongs to what is around the function.
                if inner is getattr(above, "args", None) or inner in getattr(above, "decorator_list", ()):
                    inner = above
                    continue
                return above
            inner = above
        return self.tree

    @once
    def loop_of(self, node: ast.AST) -> Loop | None:
        """Give the innermost loop whose body runs a node again, within its function."""
        inner = node
        for above in self.ancestors(node):
            # In its body, that is: a body can be long, so what else there is gets looked at.
            if isinstance(above, LOOPS) and not isinstance(inner, ast.expr) and inner not in above.orelse:
                return above
            if isinstance(above, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                return None
            inner = above
        return None

    def loops_of(self, node: ast.AST) -> Iterator[Loop]:
        """Give all loops around a node within its function, from the inside out."""
        loop = self.loop_of(node)
        while loop is not None:
            yield loop
            loop = self.loop_of(loop)

    def in_test(self, node: ast.AST) -> bool:
        """Whether a node belongs to a test: by the file's name, or that of a function around it."""
        return is_test(self.path) or any(
            isinstance(above, FUNCTIONS) and above.name.startswith("test_") for above in self.ancestors(node)
        )

    def statement_of(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def inside(self, node: ast.AST, outer: ast.AST) -> bool:
        return any(above is outer for above in self.ancestors(node))

    @once
    def conditions(self, node: ast.AST, until: ast.AST) -> list[ast.If]:
        """Give the `if`s between a node and what it stands in."""
        found: list[ast.If] = []
        inner = node
        for above in self.ancestors(node):
            if above is until:
                break
            if isinstance(above, ast.If) and inner is not above.test:
                found.append(above)
            inner = above
        return found

    @once
    def within(self, outer: ast.AST) -> tuple[ast.AST, ...]:
        """Give all nodes below one, without the bodies of functions and classes that are only defined there."""
        stack = list(ast.iter_child_nodes(outer))
        found = []
        while stack:
            node = stack.pop()
            found.append(node)
            if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                stack.extend(ast.iter_child_nodes(node))
        return tuple(found)

    @once
    def said(self, node: ast.AST) -> str:
        """Give a node as it would be written: for questions that a word in it answers."""
        return ast.unparse(node)

    @once
    def says(self, node: ast.AST, words: re.Pattern[str]) -> str:
        """Give the first of some words that stand in a node as it is written; nothing where none does."""
        found = words.search(self.said(node))
        return found[0] if found is not None else ""

    @once
    def calls_in(self, outer: ast.AST) -> list[ast.Call]:
        found = [node for node in self.within(outer) if isinstance(node, ast.Call)]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))

    # -- what names stand for -----------------------------------------------------------------------------------------

    @once
    def qualified(self, node: ast.AST) -> str:
        """Give the full dotted name of what an expression refers to, by the file's imports; else nothing."""
        name = dotted(node)
        if not name:
            return ""
        first = name.partition(".")[0]
        if not self.imports.knows(first) or self.bindings.shadows(node, first):
            return ""
        return self.imports.resolve(name)

    def value(self, node: ast.AST, name: str) -> ast.expr | None:
        """Give what a name was last set to before a node, if that was a simple assignment."""
        bound = self.bindings.last(node, name)
        return bound.value if bound is not None else None

    def bound(self, node: ast.AST, name: str) -> list[Binding]:
        return self.bindings.all(node, name)

    @once
    def callee(self, call: ast.Call) -> Function | None:
        """Give the function of this file that a call calls, if there is just one of that name."""
        name = dotted(call.func)
        if "." in name and not name.startswith("self."):
            return self._method(call, name)
        found = self._by_name.get(name.rpartition(".")[2], ())
        if name.startswith("self."):
            owner = self.class_of(call)
            found = tuple(one for one in found if owner is not None and self.parents.get(one) is owner)
        else:
            found = tuple(one for one in found if not isinstance(self.parents.get(one), ast.ClassDef))
        return found[0] if len(found) == 1 else None

    def _method(self, call: ast.Call, name: str) -> Function | None:
        """Give the method that `thing.method()` calls, where `thing` was made of a class of this file."""
        owner, _, method = name.rpartition(".")
        made = self.value(call, owner) if "." not in owner else None
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
            return None
        kind = made.func.id
        found = [
            one
            for one in self._by_name.get(method, ())
            if isinstance(above := self.parents.get(one), ast.ClassDef) and above.name == kind
        ]
        return found[0] if len(found) == 1 else None

    def calls_of(self, *methods: str) -> Iterator[tuple[ast.Call, ast.expr]]:
        """Give every call of one of these methods, with what it is called on."""
        for call in self.calls:
            owner = called_on(call, *methods)
            if owner is not None:
                yield call, owner

    def in_torch_model(self, node: ast.AST) -> bool:
        """Whether a node stands in the class of a PyTorch model."""
        owner = self.class_of(node)
        return owner is not None and self.kinds.of_class(owner) == "torch-model"

    def callers(self, function: Function) -> list[ast.Call]:
        return self._callers.get(function, [])

    @cached_property
    def _by_name(self) -> dict[str, tuple[Function, ...]]:
        found: dict[str, tuple[Function, ...]] = {}
        for function in self.functions:
            found[function.name] = (*found.get(function.name, ()), function)
        return found

    @cached_property
    def _callers(self) -> dict[Function, list[ast.Call]]:
        found: dict[Function, list[ast.Call]] = {}
        for call in self.calls:
            called = self.callee(call)
            if called is not None:
                found.setdefault(called, []).append(call)
        return found

    def decorated_by(self, function: Function, names: tuple[str, ...]) -> bool:
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self.qualified(target) in names:
                return True
            # functools.partial(jax.jit, ...)
            if isinstance(decorator, ast.Call) and any(self.qualified(arg) in names for arg in decorator.args):
                return True
        return False

    @cached_property
    def fits(self) -> bool:
        """Whether anything in the file is fitted, as Keras calls it."""
        return any(self.calls_of("fit", "fit_generator"))

    @cached_property
    def kinds(self) -> Kinds:
        return Kinds(self)

    @cached_property
    def training(self) -> Training:
        return Training(self)
