"""Which expressions a name was set to, scope by scope."""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from holter.source.module import Module

BINDERS = frozenset(
    (
        *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign),
        *(ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.arg),
    )
)
How = Literal["set", "part", "loop", "with", "grown", "argument", "defined"]


@dataclass(frozen=True)
class Binding:
    """One place that sets a name: to a value, to a part of one, or in a way that says nothing of it."""

    name: str
    node: ast.AST
    line: int
    value: ast.expr | None
    how: How


def dotted(node: ast.AST) -> str:
    """Give `self.model.head` for what is written so; nothing for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def called_on(node: ast.AST | None, *methods: str) -> ast.expr | None:
    """Give what one of these methods is called on, where a node is such a call: `loader` of `loader.cache()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        return node.func.value
    return None


class Bindings:
    """The assignments of a file, kept by the function that they stand in; those to `self` by the class."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._none: list[Binding] = []
        self._noted: list[tuple[ast.AST, str, ast.expr | None, How]] = []
        self._of: dict[ast.AST, dict[str, list[Binding]]] = {}
        self._branched: dict[int, bool] = {}
        # By the list's id, since it is kept: those that set, and their lines.
        self._plain: dict[int, tuple[list[Binding], list[int]]] = {}

    def note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(node, target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if node.value is not None:
                self._target(node, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._add(node, node.target, node.value, "grown")
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._parts(node, node.target, node.iter, "loop")
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self._parts(node, item.optional_vars, item.context_expr, "with")
        elif isinstance(node, ast.arg):
            self._noted.append((node, node.arg, None, "argument"))

    def _target(self, node: ast.AST, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for one, its in zip(target.elts, value.elts, strict=True):
                    self._target(node, one, its)
            else:
                self._parts(node, target, value, "part")
        else:
            self._add(node, target, value, "set")

    def _parts(self, node: ast.AST, target: ast.expr, value: ast.expr, how: How) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._parts(node, one, value, how)
        elif isinstance(target, ast.Starred):
            self._parts(node, target.value, value, how)
        else:
            self._add(node, target, value, how)

    def _add(self, node: ast.AST, target: ast.expr, value: ast.expr | None, how: How) -> None:
        name = dotted(target)
        if name:
            self._noted.append((node, name, value, how))

    def settle(self) -> None:
        """Sort what was noted into scopes, once the tree is known."""
        for node, name, value, how in self._noted:
            scope: ast.AST | None
            if name.startswith("self."):
                scope = self.module.class_of(node)
            elif how == "argument":
                scope = self.module.parents.get(self.module.parents.get(node, node))
            else:
                scope = self.module.scope_of(node)
            line = getattr(node, "lineno", 0)
            kept = self._of.setdefault(scope or self.module.tree, {})
            kept.setdefault(name, []).append(Binding(name, node, line, value, how))
        for names in self._of.values():
            for found in names.values():
                found.sort(key=lambda one: one.line)

    def _scopes(self, node: ast.AST, name: str) -> list[ast.AST]:
        if name.startswith("self."):
            owner = self.module.class_of(node)
            return [owner] if owner is not None else []
        scopes = [self.module.scope_of(node)]
        while scopes[-1] is not self.module.tree:
            scopes.append(self.module.scope_of(scopes[-1]))
        return scopes

    def all(self, node: ast.AST, name: str) -> list[Binding]:
        """Give every binding of a name in the nearest scope that has one."""
        for scope in self._scopes(node, name):
            found = self._of.get(scope, {}).get(name)
            if found:
                return found
        return self._none

    def last(self, node: ast.AST, name: str) -> Binding | None:
        """Give the binding that counts at a node: the last before it, or the last of an outer scope."""
        found = self.all(node, name)
        if id(found) not in self._plain:
            kept = [one for one in found if one.how != "grown"]
            self._plain[id(found)] = kept, [one.line for one in kept]
        plain, lines = self._plain[id(found)]
        before = bisect_left(lines, getattr(node, "lineno", 0))
        if before and not name.startswith("self."):
            return plain[before - 1]
        return plain[-1] if plain else None

    def branched(self, node: ast.AST, name: str) -> bool:
        """Whether a name is set under more than one set of conditions."""
        found = self.all(node, name)
        if id(found) not in self._branched:
            ways = {tuple(self.module.conditions(one.node, self.module.tree)) for one in found if one.how == "set"}
            self._branched[id(found)] = len(ways) > 1
        return self._branched[id(found)]

    def shadows(self, node: ast.AST, name: str) -> bool:
        """Whether a name that was imported is set to something else where a node stands."""
        return bool(self.all(node, name))
