"""What a rule is, what it may see of a record, and how the rules are found."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

from holter.finding import Ending, Finding
from holter.record.events.run import RunFacts
from holter.record.events.schema import Line, Reading

L = TypeVar("L", bound=Line)
P = TypeVar("P", bound=Reading)


class RecordLike(Protocol):
    """A record in memory: rules see only this, so that they depend on no file and no clock."""

    @property
    def meta(self) -> dict[str, Any]: ...

    @property
    def facts(self) -> RunFacts: ...

    @property
    def events(self) -> list[dict[str, Any]]: ...

    @property
    def timeline(self) -> list[dict[str, Any]]: ...

    @property
    def output(self) -> str: ...

    @property
    def live(self) -> bool: ...

    @property
    def recorder_lost(self) -> bool: ...

    @property
    def damage(self) -> list[str]: ...

    def source(self, path: str) -> list[str]: ...

    def of(self, kind: type[L]) -> list[L]: ...

    def readings(self, probe: type[P]) -> list[tuple[float, P]]: ...


Examine = Callable[[RecordLike, Ending], "Finding | Iterable[Finding] | None"]

# The headings of every rule's docstring, in this order; the reference pages are made from them.
HEADINGS = ("What it sees", "Why it matters", "May be confused with", "How sure", "Cure")


@dataclass(frozen=True)
class Rule:
    """One illness: its cause, the story in its docstring, and the function that looks for it."""

    cause: str
    story: str
    examine: Examine
    # Families that explain this one away: where they are found, this finding is their consequence.
    yields_to: tuple[str, ...] = ()
    # False for a fact without a reason: it takes nobody else's word away.
    explains: bool = True

    @classmethod
    def of(cls, cause: str, examine: Examine, yields_to: tuple[str, ...] = ()) -> Rule:
        """Give one of several rules of a module: its story is its function's own docstring."""
        return cls(cause, inspect.cleandoc(examine.__doc__ or ""), examine, yields_to)


@cache
def find_rules() -> tuple[Rule, ...]:
    """Find every module `<illness>/rules/<name>.py`; adding a rule touches no other file.

    A module is one rule; rules that differ in little more than their words share one, which lists them in `RULES`.
    """
    package = importlib.import_module("holter.diagnosis")
    found: list[Rule] = []
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if info.ispkg or info.name.split(".")[-2] != "rules":
            continue
        module = importlib.import_module(info.name)
        if hasattr(module, "RULES"):
            found.extend(module.RULES)
            continue
        yields_to = tuple(getattr(module, "YIELDS_TO", ()))
        explains = bool(getattr(module, "EXPLAINS", True))
        found.append(Rule(module.CAUSE, module.__doc__ or "", module.examine, yields_to, explains))
    return tuple(sorted(found, key=lambda rule: rule.cause))
