"""The runs as a table: one line each, the newest first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from holter.finding import Verdict
from holter.units import duration
from holter.views.plain import clean, encodable

_HEADS = ("RUN", "NAME", "STARTED", "LASTED", "ENDING", "WHY")


@dataclass(frozen=True)
class RunRow:
    """One run of the table, in words; `holter ls --json` prints all of it."""

    id: str
    name: str
    started: float | None
    lasted: float | None
    ending: str
    why: str
    cause: str = ""
    healthy: bool | None = None  # None while it is on
    command: tuple[str, ...] = ()


def row_of(verdict: Verdict, lasted: float | None = None) -> RunRow:
    """Make a run's line from its verdict: the first finding's claim, else how it ended."""
    run = verdict.run
    why = verdict.findings[0].claim if verdict.findings else verdict.ending.claim.removeprefix("The run ")
    began, ended = run.get("started"), run.get("ended")
    if lasted is None and isinstance(began, (int, float)) and isinstance(ended, (int, float)):
        lasted = ended - began
    start = float(began) if isinstance(began, (int, float)) else None
    kind, words = verdict.ending.kind, run.get("command")
    return RunRow(
        str(run.get("id") or ""), str(run.get("name") or ""), start, lasted,
        "looked at" if verdict.looked_at else kind, why,
        cause=verdict.findings[0].cause if verdict.findings else "",
        healthy=None if kind == "running" else verdict.healthy,
        command=tuple(map(str, words)) if isinstance(words, list) else (),
    )  # fmt: skip


def write_runs(rows: Sequence[RunRow], stream: TextIO, *, width: int = 80) -> None:
    """Write the table; the last column is cut to what the terminal has room for."""
    if not rows:
        stream.write("no runs yet: holter run -- COMMAND\n")
        return
    cells = [_HEADS, *(_cells(row) for row in rows)]
    widths = [min(24, max(len(line[column]) for line in cells)) for column in range(5)]
    lines = []
    for line in cells:
        left = "  ".join(_cut(cell, size).ljust(size) for cell, size in zip(line, widths, strict=False))
        lines.append(f"{left}  {_cut(line[5], max(12, width - len(left) - 2))}".rstrip())
    stream.write(encodable("\n".join(lines) + "\n", stream))


def _cells(row: RunRow) -> tuple[str, ...]:
    known = row.started is not None and 0 < row.started < 4e9
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)) if known else "?"
    took = duration(row.lasted) if row.lasted is not None and row.lasted >= 0 else "?"
    return clean(row.id), clean(row.name), started, took, clean(row.ending), clean(row.why)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: max(1, size - 1)].rstrip() + "…"
