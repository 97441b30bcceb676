"""The runs as a table: one line each, the newest first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from holter.finding import Verdict
from holter.units import duration, size
from holter.views.plain import clean, encodable

_HEADS = ("RUN", "NAME", "TAGS", "JOB", "STARTED", "LASTED", "PEAK", "ENDING", "WHY")
_WIDEST = 24


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
    peak: float | None = None  # bytes of memory
    tags: tuple[str, ...] = ()
    note: str = ""
    job: str = ""  # the key that all records of one job share
    ranks: tuple[int, ...] = ()  # of the job, those in this record


def row_of(verdict: Verdict, lasted: float | None = None) -> RunRow:
    """Make a run's line from its verdict: the first finding's claim, else how it ended."""
    run = verdict.run
    why = verdict.findings[0].claim if verdict.findings else verdict.ending.claim.removeprefix("The run ")
    began, ended = run.get("started"), run.get("ended")
    if lasted is None and isinstance(began, (int, float)) and isinstance(ended, (int, float)):
        lasted = ended - began
    start = float(began) if isinstance(began, (int, float)) else None
    kind, words, job = verdict.ending.kind, run.get("command"), run.get("job") or {}
    return RunRow(
        str(run.get("id") or ""), str(run.get("name") or ""), start, lasted,
        "looked at" if verdict.looked_at else kind, why,
        cause=verdict.findings[0].cause if verdict.findings else "",
        healthy=None if kind == "running" else verdict.healthy,
        command=tuple(map(str, words)) if isinstance(words, list) else (),
        job=str(job.get("key") or ""), ranks=tuple(job.get("ranks") or ()),
    )  # fmt: skip


def write_runs(rows: Sequence[RunRow], stream: TextIO, *, width: int = 80, with_peak: bool = False) -> None:
    """Write the table; the last column is cut to what the terminal has room for.

    The column of tags is there where some run has a tag or a note, that of jobs where one belongs to some.
    """
    if not rows:
        stream.write("no runs yet: holter run -- COMMAND\n")
        return
    left_out = {
        *(() if with_peak else ("PEAK",)),
        *(() if any(row.tags or row.note for row in rows) else ("TAGS",)),
        *(() if any(row.job for row in rows) else ("JOB",)),
    }
    heads = [head for head in _HEADS if head not in left_out]
    cells = [heads, *([_cells(row)[head] for head in heads] for row in rows)]
    widths = [min(_WIDEST, max(len(line[column]) for line in cells)) for column in range(len(heads) - 1)]
    lines = []
    for line in cells:
        left = "  ".join(_cut(cell, wide).ljust(wide) for cell, wide in zip(line, widths, strict=False))
        lines.append(f"{left}  {_cut(line[-1], max(12, width - len(left) - 2))}".rstrip())
    stream.write(encodable("\n".join(lines) + "\n", stream))


def _cells(row: RunRow) -> dict[str, str]:
    known = row.started is not None and 0 < row.started < 4e9
    return {
        "RUN": clean(row.id),
        "NAME": clean(row.name),
        "TAGS": clean(" ".join(["(note)"] * bool(row.note) + [*row.tags])),
        "JOB": clean(row.job),
        "STARTED": time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)) if known else "?",
        "LASTED": duration(row.lasted) if row.lasted is not None and row.lasted >= 0 else "?",
        "PEAK": size(row.peak) if row.peak is not None else "?",
        "ENDING": clean(row.ending),
        "WHY": clean(row.why),
    }


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + "…"
