"""What a rule says about a script, and what the user is shown of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from holter.finding import Cure

# error: halts the run or spoils its result; warning: does so with enough data or time; note: only costs time.
Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Edit:
    """One replacement in a file: from (line, column) to (line, column), in the bytes of UTF-8 as `ast` counts them."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Hit:
    """A rule's finding: where, what, the cure if it differs from the rule's first, and the edits of a safe fix."""

    node: ast.stmt | ast.expr
    claim: str
    level: Level = "warning"
    cure: Cure | None = None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class TextEdit:
    """One replacement as editors count: lines and characters from 1, the end behind the last; cells by themselves."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Problem:
    """A finding with its place in a file; `line` counts within the cell for a notebook."""

    code: str
    name: str
    level: Level
    cause: str | None
    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    claim: str
    source: str
    cures: tuple[Cure, ...]
    cell: int | None = None
    fixable: bool = False
    edits: tuple[TextEdit, ...] = ()

    @property
    def place(self) -> str:
        cell = f"cell {self.cell}:" if self.cell is not None else ""
        return f"{self.file}:{cell}{self.line}:{self.column}"

    def as_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shown["cures"] = [{"title": cure.title, "how": cure.how, "keeps": cure.keeps} for cure in self.cures]
        shown["edits"] = [vars(edit) for edit in self.edits]
        return shown


@dataclass(frozen=True)
class Unread:
    """A path that could not be checked, and why."""

    file: str
    why: str


class Change(NamedTuple):
    """A file as it would be after its fixes, and how many those are."""

    path: str
    before: bytes
    after: bytes
    fixes: int


@dataclass
class Checked:
    """All that one or many files gave."""

    files: int = 0
    problems: list[Problem] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    fixed: int = 0
    changes: list[Change] = field(default_factory=list)

    def add(self, other: Checked) -> None:
        self.files += other.files
        self.problems += other.problems
        self.unread += other.unread
        self.fixed += other.fixed
        self.changes += other.changes
