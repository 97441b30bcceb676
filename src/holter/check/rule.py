"""What a rule is, and how the rules are found."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.module import Module

# The headings of every rule's docstring, in this order; docs/check.md is made from them.
HEADINGS = ("What it does", "Why it halts or slows a run", "Example", "Instead", "When the fix is safe")

Examine = Callable[[Module], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """One trap: its code and name, the doctor's cause that it leads to, its cures, and the function that finds it."""

    code: str
    name: str
    # None where no run shows the illness: the training goes on, with a worse result.
    cause: str | None
    cures: tuple[Cure, ...]
    # The doctor knows the cause, but sees it otherwise and cures it otherwise.
    own_cure: bool
    story: str
    examine: Examine
    # Words of which a file must have one for the rule to be asked at all, or how else it can be written.
    needs: tuple[str, ...]
    or_written: re.Pattern[str] | None
    # Words of which it must have one besides.
    and_needs: tuple[str, ...]
    # A test is no run: it is short, and often sick on purpose. Most rules have nothing to say about one.
    in_tests: bool

    def may_find(self, text: str, has: Callable[[str], bool]) -> bool:
        """Whether a text has what this trap can't be without, asked before it is parsed; `has` looks for a word."""
        if self.and_needs and not any(map(has, self.and_needs)):
            return False
        return any(map(has, self.needs)) or (self.or_written is not None and bool(self.or_written.search(text)))


@cache
def find_rules() -> tuple[Rule, ...]:
    """Find every module of `rules/`; adding a rule touches no other file."""
    package = importlib.import_module("holter.check.rules")
    found = []
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        found.append(
            Rule(
                module.CODE,
                info.name.rpartition(".")[2].replace("_", "-"),
                module.CAUSE,
                module.CURES,
                getattr(module, "OWN_CURE", False),
                module.__doc__ or "",
                module.examine,
                module.NEEDS,
                re.compile(written) if (written := getattr(module, "OR_WRITTEN", None)) else None,
                getattr(module, "AND_NEEDS", ()),
                getattr(module, "IN_TESTS", False),
            )
        )
    return tuple(sorted(found, key=lambda rule: rule.code))
