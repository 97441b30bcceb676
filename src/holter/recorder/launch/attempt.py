"""One start of the command, and what follows when it has ended: under `--heal` that may be another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holter.record.writer import RecordWriter

if TYPE_CHECKING:
    from holter.recorder.loop.recorder import Outcome, Recorder


@dataclass
class Next:
    """What follows an attempt that has ended: another one with a change, or the end, and why."""

    restart: dict[str, Any] | None = None  # the words of it, as an `intervention`
    environ: dict[str, str] = field(default_factory=dict)
    declined: str = ""
    exit_code: int | None = None  # in place of the command's own


@dataclass
class Attempt:
    """One start of the command, and how it went."""

    number: int
    folder: Path | None = None
    writer: RecordWriter | None = None
    recorder: Recorder | None = None
    outcome: Outcome | None = None
    part: Callable[[], None] = lambda: None  # lets the keeper go

    @property
    def name(self) -> str | None:
        return self.folder.name if self.folder is not None else None


# Asked with the record's folder once an attempt has ended, under `--heal` alone.
Healer = Callable[[Path], Next]
