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
    from holter.views.runs import RunRow

_SHOWN = 20


@click.command()
@click.option("--all", "everything", is_flag=True, help=f"All runs, not only the last {_SHOWN}.")
@click.option("--failed", is_flag=True, help="Only runs that failed or in which something was found.")
@click.option("--since", type=Moment(), metavar="TIME", help="Only runs that began since: 7d, 12h, 2026-11-30.")
@click.option("--name", metavar="TEXT", help="Only runs with TEXT in their name.")
@click.option("--json", "as_json", is_flag=True, help=f"A line of JSON for each run, the last {_SHOWN} without --all.")
def command(everything: bool, failed: bool, since: float | None, name: str | None, as_json: bool) -> None:
    """List the runs, the newest first."""
    from holter.record import place
    from holter.views.runs import write_runs

    base = place.home()
    folders = [place.runs_folder(base) / run_id for run_id in reversed(place.run_ids(base))]
    wanted = [folder for folder in folders if _matches(folder, since, name)]
    rows: list[RunRow] = []
    older = 0
    for looked_at, folder in enumerate(wanted):
        if len(rows) == _SHOWN and not everything:
            older = len(wanted) - looked_at
            break
        row = _row(folder)
        if not failed or row.healthy is False:
            rows.append(row)
    if as_json:
        for row in rows:
            print(json.dumps(asdict(row)))
        return
    if folders and not rows:
        print("no run is like that: holter ls shows the last ones")
        return
    write_runs(rows, sys.stdout, width=shutil.get_terminal_size().columns if sys.stdout.isatty() else 120)
    if older:
        print(f"and {older} older: the same with --all")


def _matches(folder: Path, since: float | None, name: str | None) -> bool:
    from holter.errors import DamagedRecord
    from holter.record.reader import read_meta

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
    from holter.errors import DamagedRecord
    from holter.record.reader import open_record
    from holter.views.runs import RunRow, row_of

    try:
        return replace(row_of(verdict(open_record(folder))), id=folder.name)  # that by which it is found
    except DamagedRecord as error:
        why = str(error)
    except Exception as error:
        # One record that can't be judged, whoever made it, must not take the others with it.
        why = f"Holter could not judge it: {type(error).__name__}: {error}"
    return RunRow(folder.name, "", None, None, "unreadable", why, healthy=False)
