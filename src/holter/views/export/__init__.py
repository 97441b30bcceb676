"""Where people already look: what a run's record says, handed on to the tools they have open.

One tool, one file, found by its name, run in a process of its own that only reads the record. Each file has:

- `Exporter(run, report)` with `numbers(moment)`, `news(item)` and `close()`. It raises `NotInstalled` where its package
  is missing, and tells a person what does not work, in one line;
- `WHERE`: what `--export NAME=...` may say, in words; nothing where it may say nothing;
- `LISTENS`: it answers on a port of this machine;
- `environment(ticket, base)`: variables for the command, where the tool is to find us, or to mark its run.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class Processes(Protocol):
    """What can be seen of a process from outside."""

    def open_files(self, pid: int) -> list[str]: ...
    def environ_of(self, pid: int) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Ticket:
    """How the tool and we know each other: a word that nobody can guess, and a port where one is listened on."""

    mark: str
    port: int = 0


@dataclass(frozen=True)
class Run:
    """What is exported, and all that is known of it before the first number."""

    id: str
    name: str
    command: tuple[str, ...]  # masked
    host: str
    started: float
    folder: str  # in which the command was started
    meanings: Mapping[str, str]  # of each number, by its name
    where: str = ""
    mark: str = ""
    listener: int = -1  # the socket's descriptor
    processes: Processes | None = None


@dataclass(frozen=True)
class Moment:
    """The last reading of each curve, as `/metrics` has it; the step is None where none is known."""

    t: float
    step: int | None
    values: Mapping[str, float]
    pids: Iterable[int] = ()


@dataclass(frozen=True)
class News:
    """A finding, the ending, or what is told while the run is on (`alarm`); in words, with its facts beside them."""

    kind: str
    t: float
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Exporter(Protocol):
    """One tool's side."""

    def numbers(self, moment: Moment) -> None: ...
    def news(self, item: News) -> None: ...
    def close(self) -> None: ...


def names() -> list[str]:
    """The tools that are known."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def tool(name: str) -> Any:
    """A tool's module."""
    return importlib.import_module(f"{__name__}.{name}")
