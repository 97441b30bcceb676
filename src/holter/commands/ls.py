"""holter ls: the runs."""

from __future__ import annotations

import shutil
import sys

import click

_SHOWN = 20


@click.command()
@click.option("--all", "everything", is_flag=True, help=f"All runs, not only the last {_SHOWN}.")
def command(everything: bool) -> None:
    """List the runs, the newest first."""
    from holter.diagnosis.core.doctor import verdict
    from holter.errors import DamagedRecord
    from holter.record import place
    from holter.record.reader import open_record
    from holter.views.runs import RunRow, row_of, write_runs

    base = place.home()
    ids = place.run_ids(base)
    shown = ids if everything else ids[-_SHOWN:]
    rows = []
    for run_id in reversed(shown):
        try:
            rows.append(row_of(verdict(open_record(place.runs_folder(base) / run_id))))
        except DamagedRecord as error:
            rows.append(RunRow(run_id, "", None, None, "unreadable", str(error)))
        except Exception as error:
            # One record that can't be judged, whoever made it, must not take the others with it.
            why = f"Holter could not judge it: {type(error).__name__}: {error}"
            rows.append(RunRow(run_id, "", None, None, "unreadable", why))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    write_runs(rows, sys.stdout, width=width)
    if len(shown) < len(ids):
        print(f"and {len(ids) - len(shown)} older: holter ls --all")
