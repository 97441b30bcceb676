"""holter ls: the runs."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--all", "everything", is_flag=True, help="All runs, not only the last 20.")
def command(everything: bool) -> None:
    """List the runs, the newest last."""
    from holter.diagnosis.doctor import verdict
    from holter.errors import DamagedRecord
    from holter.record import place
    from holter.record.reader import open_record
    from holter.views.runs import write_runs

    base = place.home()
    ids = place.run_ids(base)
    shown = ids if everything else ids[-20:]
    rows = []
    for run_id in shown:
        try:
            record = open_record(place.runs_folder(base) / run_id)
            rows.append((run_id, verdict(record)))
        except DamagedRecord:
            rows.append((run_id, None))
    write_runs(rows, sys.stdout, hidden=len(ids) - len(shown), base=str(base))
