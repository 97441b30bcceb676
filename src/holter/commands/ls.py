"""holter ls: the runs."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holter.commands._amounts import Moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from holter.views.runs import RunRow

_SHOWN = 20


@click.command()
@click.option("--all", "everything", is_flag=True, help=f"All runs, not only the last {_SHOWN}.")
@click.option("--failed", is_flag=True, help="Only runs that failed or in which something was found.")
@click.option("--since", type=Moment(), metavar="TIME", help="Only runs that began since: 7d, 12h, 2026-11-30.")
@click.option("--name", metavar="TEXT", help="Only runs with TEXT in their name.")
@click.option("--tag", metavar="TAG", help="Only runs with this tag.")
@click.option(
    "--sort",
    type=click.Choice(["started", "duration", "peak", "name"]),
    default="started",
    help="The newest first, the longest, those with the highest memory, or by name.",
)
@click.option("--json", "as_json", is_flag=True, help=f"A line of JSON for each run, the last {_SHOWN} without --all.")
def command(
    everything: bool, failed: bool, since: float | None, name: str | None, tag: str | None, sort: str, as_json: bool
) -> None:
    """List the runs, the newest first, with their tags, and (note) where somebody wrote one."""
    from holter.record import place
    from holter.views.runs import write_runs

    base = place.home()
    folders = [place.runs_folder(base) / run_id for run_id in reversed(place.run_ids(base))]
    wanted = [folder for folder in folders if _matches(folder, since, name, tag)]
    rows: list[RunRow] = []
    more = 0
    for looked_at, folder in enumerate(wanted):
        # The newest are known before they are read; which run was the longest is known when all have been.
        if len(rows) == _SHOWN and not everything and sort == "started":
            more = len(wanted) - looked_at
            break
        row = _row(folder)
        if not failed or row.healthy is False:
            rows.append(row)
    if sort != "started":
        rows.sort(key=_ORDERS[sort])
        rows, more = (rows, 0) if everything else (rows[:_SHOWN], len(rows[_SHOWN:]))
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
        return
    if folders and not rows:
        print("no run is like that: holter ls shows the last ones")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    write_runs(rows, sys.stdout, width=width, with_peak=sort == "peak")
    if more:
        print(f"and {more} {'older' if sort == 'started' else 'more'}: the same with --all")


# What is not known comes last.
_ORDERS: dict[str, Callable[[RunRow], tuple[bool, float | str]]] = {
    "duration": lambda row: (row.lasted is None, -(row.lasted or 0.0)),
    "peak": lambda row: (row.peak is None, -(row.peak or 0.0)),
    "name": lambda row: (not row.name, row.name.casefold()),
}


def _matches(folder: Path, since: float | None, name: str | None, tag: str | None) -> bool:
    from holter.errors import DamagedRecord
    from holter.record.labels import read_labels
    from holter.record.reader import read_meta

    if tag is not None and tag not in read_labels(folder).tags:
        return False
    if since is None and name is None:
        return True
    try:
        meta = read_meta(folder)
    except DamagedRecord:
        return False
    began = meta.get("started")
    late = since is None or (isinstance(began, (int, float)) and began >= since)
    return late and (name is None or name in str(meta.get("name") or ""))


def _row(folder: Path) -> RunRow:
    from holter.diagnosis.core.doctor import verdict
    from holter.diagnosis.core.examined import examined
    from holter.errors import DamagedRecord
    from holter.figures.summary import peak_memory
    from holter.record.labels import read_labels
    from holter.record.reader import open_record
    from holter.views.runs import RunRow, row_of

    labels = read_labels(folder)
    try:
        record = examined(open_record(folder))
        found = verdict(record)
        return replace(
            row_of(found), id=folder.name, peak=peak_memory(record, found), tags=labels.tags, note=labels.note
        )  # by the id that it is found by
    except DamagedRecord as error:
        why = str(error)
    except Exception as error:
        # One record that can't be judged, whoever made it, must not take the others with it.
        why = f"Holter could not judge it: {type(error).__name__}: {error}"
    return RunRow(
        folder.name, labels.name, None, None, "unreadable", why, healthy=False, tags=labels.tags, note=labels.note
    )  # fmt: skip
