"""holter why: the verdict on a run, or on a job of several."""

from __future__ import annotations

import sys

import click

from holter.commands._complete import complete_run


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...", shell_complete=complete_run)
@click.option("--job", "key", metavar="KEY", help="All records of a job, by its key: holter ls shows it.")
@click.option(
    "--against", metavar="RUN", shell_complete=complete_run,
    help="Say what differs from this run, what was changed, and which change explains it.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, schema 2; with --against schema 1.")
def command(runs: tuple[str, ...], key: str | None, against: str | None, as_json: bool) -> None:
    """Say how RUN ended and why: the last run, one by its id or name, or a record's folder.

    Of several records of one job, each of a rank or a machine, there is one verdict: which rank is to blame.

    Exits with 0 whenever a verdict was given, 3 when there is no such run, 4 when the record can't be read.
    """
    from holter.commands._job import records_of_job
    from holter.commands._show import show, show_against, show_job
    from holter.record.reader import find

    if against is not None and (len(runs) > 1 or key is not None):
        raise click.UsageError("--against compares one run with another: name one RUN")
    folders = [find(run) for run in dict.fromkeys(runs)]
    if key is not None:
        folders += [folder for folder in records_of_job(key) if folder not in folders]
    if len(folders) > 1:
        show_job(folders, sys.stdout, as_json=as_json)
        return
    folder = folders[0] if folders else find(None)
    if against is None:
        show(folder, sys.stdout, as_json=as_json)
    else:
        show_against(folder, find(against), sys.stdout, as_json=as_json)
