"""Writes docs/record.md from the record's schema (src/holter/record/events): `make docs`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

from holter.record.events.agent import AGENT_EVENTS
from holter.record.events.kinds import EVENTS
from holter.record.events.looks import LOOKS
from holter.record.events.ranks import RANK_EVENTS
from holter.record.events.recorder import KEEPER_EVENTS, RECORDER_EVENTS
from holter.record.events.run import RunFacts
from holter.record.events.schema import Line, Reading, Row, hints_of, keys_of, meanings_of, rows_of
from holter.record.events.timeline import READINGS, TIMELINE, DeviceMemory, Sample, StepWindow

PAGE = Path(__file__).with_name("record.md")

TOP = """# The record

Made from the schema in [record/events](../src/holter/record/events) by `make docs`; do not edit.

A run's record is a folder, `$HOLTER_HOME/runs/<id>/` (default `~/.holter`), mode 0700. It is the product of
recording and the only input of the diagnosis and the views. Copied to another machine, it opens there.
Everything in it is JSON lines or plain bytes with a checksum: reading it never executes anything.

| file | what it holds | written by |
|---|---|---|
| `record.json` | what is known at the start: schema, id, name, command, cwd, host, limits | recorder, once |
| `events.jsonl` | rare facts, in order, never thinned | recorder |
| `timeline/NNNNNN.jsonl[.gz]` | samples and step windows; the newest file is open, older ones are thinned and packed \
| recorder |
| `keeper.jsonl` | how the command started and ended | keeper (outlives the recorder) |
| `sources.jsonl` | the user's files that events name (`file, text`), as they were when first named; secrets masked, \
at most 40 files of 256 KB | recorder |
| `labels.json` | what people wrote on the record since: `name` (instead of the one in `record.json`), `tags`, `note`; \
there only where they did | `holter tag`, `note`, `rename` |
| `output.tail` | the last 256 KB of the command's output, stdout and stderr as they came | keeper |
| `stacks/<pid>.txt` | the raw text of `faulthandler` | the agent |
| `guests/<pid>.<made>.ring`, `guests/<pid>.jsonl` | what the agent wrote, as it was at the end; rings of processes \
that ended before the run did are drained into the timeline and let go | copied at the end |

A line that was cut by a kill is skipped and counted. Unknown kinds and unknown fields are passed over, so that
newer records open in older versions; a value of another type than is said here counts as absent. `schema` in
`record.json` is 1.
"""

LINES = """## Lines

Every line is an object with `k` (its kind), `t` (wall-clock seconds) and `m` (monotonic seconds, the same clock in all
processes of one machine). Sizes are bytes, times are seconds, counters are cumulative unless the meaning says
otherwise. A reading that could not be had is absent, and a `missing` event says why.
"""

KEEPER = """To the recorder alone the keeper tells `stopped`, `continued` (which that one writes as events), `ending`
(the end, before it is taken note of), `passed` (an output is at its end), `drained`. When the keeper is killed the
recorder writes on here.
"""

SKIMMED = "Where steps take less than 10 ms in the mean, one in eight or fewer is split into phases and stands for all."
TYPES = {int: "int", float: "number", str: "text", bool: "bool", Any: ""}


def page() -> str:
    """The whole page."""
    sample = (f"| `{probe.PROBE}` | {_explained(probe)} |" for probe in READINGS)
    parts = [
        TOP,
        "## record.json\n",
        _fields(RunFacts) + "\n",
        LINES,
        "### timeline: `sample`\n",
        "One key per probe; a probe that was not read this time is absent. Besides them:<br>"
        + _fields(Sample, leave_out=Line)
        + "\n",
        _table("key", sample),
        "### timeline: `steps`\n",
        _explained(StepWindow).replace("<br>", f" {SKIMMED}<br>", 1) + "\n",
        "### timeline: `device`\n",
        _explained(DeviceMemory) + "\n",
        "### events of the agent\n",
        _table("kind", map(_row, AGENT_EVENTS)),
        "### events of the agent's looks\n",
        _table("kind", map(_row, LOOKS)),
        "### events of a job of several ranks\n",
        _table("kind", map(_row, RANK_EVENTS)),
        "### events of the recorder\n",
        _table("kind", map(_row, RECORDER_EVENTS)),
        "### keeper.jsonl\n",
        KEEPER,
        _table("kind", map(_row, KEEPER_EVENTS)),
        "## Rows\n",
        "The objects inside of lines.\n",
        _table("row", (f"| {row.__name__} | {_explained(row)} |" for row in rows_of((*READINGS, *TIMELINE, *EVENTS)))),
    ]
    return "\n".join(parts)


def _table(first: str, rows: Iterable[str]) -> str:
    return "\n".join([f"| {first} | what it says |", "|---|---|", *rows]) + "\n"


def _row(kind: type[Line]) -> str:
    return f"| `{kind.KIND}` | {_explained(kind)} |"


def _explained(row: type[Row]) -> str:
    """What a class is for, and its fields; those of every line are told once."""
    says = " ".join((row.__doc__ or "").split())
    fields = _fields(row, leave_out=Line if issubclass(row, Line) else Reading)
    return f"{says}<br>{fields}" if fields else says


def _fields(row: type[Row], leave_out: type[Row] = Row) -> str:
    hints, keys, meanings = hints_of(row), keys_of(row), meanings_of(row)
    known = [_field(keys[name], hints[name], meanings[name]) for name in hints if name not in hints_of(leave_out)]
    return "<br>".join(known)


def _field(key: str, hint: Any, meaning: str) -> str:
    words = " ".join(word for word in (f"`{key}`", _type(hint)) if word)
    return f"{words}: {meaning}" if meaning else words


def _type(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Row):
        return f"[{hint.__name__}](#rows)"
    if get_origin(hint) is tuple:
        inner, rest = get_args(hint)
        return f"list of {_type(inner)}" if rest is ... else "pairs"
    if hint in TYPES:
        return TYPES[hint]
    kinds = [_type(kind) for kind in get_args(hint) if kind is not type(None)]
    return " or ".join(kinds)


if __name__ == "__main__":
    PAGE.write_text(page())
