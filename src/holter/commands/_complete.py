"""What the shell offers for RUN when Tab is pressed: ids and names of the newest runs."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_RUNS = 200  # runs: one small file is read for each, so that the shell waits for milliseconds
_HELP_LETTERS = 60
# Shells take what is offered as it stands: a name that they would read as anything but one word is not offered.
_PLAIN = re.compile(r"[\w.+@%][\w.+@%-]{0,99}", re.ASCII)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """The runs that begin so, the newest first; folders where a path was begun."""
    if incomplete.startswith((".", "/", "~")) or "/" in incomplete:
        return [CompletionItem(incomplete, type="dir")]
    with contextlib.suppress(Exception):  # whatever is wrong with the records, a Tab says nothing about it
        return list(_runs(incomplete))
    return []


def _runs(incomplete: str) -> Iterator[CompletionItem]:
    from holter.errors import DamagedRecord
    from holter.record import place
    from holter.record.reader import read_meta
    from holter.views.plain import clean

    base, seen = place.home(), set()
    for run_id in reversed(place.run_ids(base)[-_MAX_RUNS:]):
        try:
            meta = read_meta(place.runs_folder(base) / run_id)
        except DamagedRecord:
            meta = {}
        name, words = str(meta.get("name") or ""), meta.get("command")
        if run_id.startswith(incomplete):
            said = name or (" ".join(map(str, words)) if isinstance(words, list) else "")
            yield CompletionItem(run_id, help=clean(said)[:_HELP_LETTERS])
        if name.startswith(incomplete) and _PLAIN.fullmatch(name) and name not in seen:
            seen.add(name)
            yield CompletionItem(name, help=run_id)
