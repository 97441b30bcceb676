"""Frames of Python stacks, and which of them are the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from holter.finding import Culprit
from holter.record.events.rows import StackFrame

# Files that belong to an installation, whatever machine the record comes from (slashes are made one kind).
_INSTALLED = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python\d[\d.]*t?/|/lib/python\d+\.zip/|^<frozen |^<__array_function__|"
    r"^<attrs generated|^<eval_with_key>|/Python\.framework/|/holter/(?:agent|beacon)/|"
    r"^[A-Za-z]:/.*/Lib/[a-z_]+(\.py|/)"
)

# Python source, a notebook's cell or a script without an ending; libraries and C files are none of these.
_SOURCE = re.compile(r"\.(?:pyw?|ipynb)$|^<(?:stdin|string|ipython|cell)|/ipykernel_|/(?!bin/)[^/.]+/[^/.]+$")


_IN_SENTENCE = 60  # characters of code


@dataclass(frozen=True)
class Frame:
    """One call: where it stands, and the code on that line where it was recorded."""

    file: str
    line: int
    function: str = ""
    code: str = ""
    user: bool = False

    @property
    def name(self) -> str:
        """Give the function's own name: newer Pythons and py-spy write its class before it."""
        return self.function.rpartition(".")[2]

    @property
    def short(self) -> str:
        return f"{short_path(self.file)}:{self.line}" if self.line else short_path(self.file)  # a library without lines

    @property
    def place(self) -> str:
        """Give the line with the code on it, for a sentence: `train.py:41 (q.get())`."""
        return f"{self.short} ({self.code[:_IN_SENTENCE]})" if self.code else self.short

    @property
    def culprit(self) -> Culprit:
        return Culprit(self.file, self.line, self.function, self.code)


class Placed(Protocol):
    """What an event says of a line of the user's; an empty file or no line where it is not known."""

    @property
    def file(self) -> str: ...

    @property
    def line(self) -> int | None: ...

    @property
    def function(self) -> str: ...

    @property
    def code(self) -> str: ...


def culprit_on(place: Placed | None) -> Culprit | None:
    """Give the line that an event names; None where it names none."""
    if place is None or not place.file or not place.line:
        return None
    return Culprit(place.file, place.line, place.function, place.code.strip())


def short_path(path: str) -> str:
    """Give a path's last part: the name a person knows the file by."""
    path = path.partition("#importlib._bootstrap")[0]  # the agent's wrappers, which no warning's `stacklevel` counts
    parts = path.replace("\\", "/").rstrip("/").split("/")
    # A package's first file has the name of all the others.
    kept = parts[-2:] if parts[-1] in ("__init__.py", "__main__.py") else parts[-1:]
    return "/".join(kept) or path


def is_user_file(path: str) -> bool:
    """Tell a user's file from one that was installed with Python or a package."""
    slashed = path.replace("\\", "/")
    return bool(_SOURCE.search(slashed)) and not _INSTALLED.search(slashed)


def frames_of(rows: Iterable[StackFrame]) -> list[Frame]:
    """Read the frames of an event or of one of its threads, in the order they were written."""
    return [_frame(row) for row in rows if row.file or row.function]


def _frame(row: StackFrame) -> Frame:
    user = is_user_file(row.file) if row.user is None else row.user
    return Frame(row.file, row.line or 0, row.function, row.code.strip(), user)


def last_user_frame(frames: Iterable[Frame]) -> Frame | None:
    """Give the innermost user frame of a stack that is written outermost first."""
    return next((frame for frame in reversed(list(frames)) if frame.user), None)


def innermost_first(frames: list[Frame]) -> list[Frame]:
    """Turn a stack so that the blocked call comes first, whichever way its source writes stacks."""
    if len(frames) > 1 and frames[0].function == "<module>" and frames[-1].function != "<module>":
        return frames[::-1]
    return frames
