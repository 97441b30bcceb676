"""holter why: the verdict on a run."""

from __future__ import annotations

import sys

import click

from holter.commands._complete import complete_run


@click.command()
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--against", metavar="RUN", shell_complete=complete_run,
    help="Say what differs from this run, what was changed, and which change explains it.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, schema 1.")
def command(run: str | None, against: str | None, as_json: bool) -> None:
    """Say how RUN ended and why: the last run, one by its id or name, or a record's folder.

    Exits with 0 whenever a verdict was given, 3 when there is no such run, 4 when the record can't be read.
    """
    from holter.commands._show import show, show_against
    from holter.record.reader import find

    if against is None:
        show(find(run), sys.stdout, as_json=as_json)
    else:
        show_against(find(run), find(against), sys.stdout, as_json=as_json)
