"""holter report: one file about a run, to send to someone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from holter.commands._complete import complete_run
from holter.errors import HolterError


@click.command()
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--output", "-o", metavar="FILE", help="Where to write it; - for stdout. By default RUN.html or RUN.md.")
@click.option(
    "--format", "form", type=click.Choice(["html", "md"]),
    help="A page with its charts, or Markdown for an issue. By default what FILE ends in, else html.",
)  # fmt: skip
def command(run: str | None, output: str | None, form: str | None) -> None:
    """Write one file about RUN: the last run, one by its id or name, or a record's folder.

    The page opens offline in any browser, with the same charts as `holter serve`, and asks nothing of the network. What
    looks like a secret is masked in it; look through it all the same before you send it.
    """
    from holter.diagnosis.core.doctor import verdict
    from holter.diagnosis.core.examined import examined
    from holter.figures.document import document_of
    from holter.record.reader import find, open_record
    from holter.views.markdown import markdown_of
    from holter.views.plain import clean
    from holter.views.web.page import has_charts, report_page

    folder = find(run)
    form = form or ("md" if output and output.lower().endswith((".md", ".markdown")) else "html")
    record = examined(open_record(folder))
    document = document_of(record, verdict(record))
    made = markdown_of(document).encode() if form == "md" else report_page(document)
    if output == "-":
        sys.stdout.buffer.write(made)
        return
    # By the folder that the user named, never by what the record says of itself: that may be a path to anywhere.
    path = Path(output or f"{folder.resolve().name or 'run'}.{form}")
    try:
        _write(path, made, follow=output is not None)
    except OSError as error:
        raise HolterError(f"{clean(path)} can't be written: {error.strerror}", "Choose another with: -o FILE") from None
    click.echo(f"{clean(path)}: {len(made) / 1e3:,.0f} KB", err=True)
    if form == "html" and not has_charts():
        click.echo("without charts: this build of Holter has no chart library", err=True)


def _write(path: Path, made: bytes, *, follow: bool) -> None:
    """For the user's eyes alone, as the record is, until they choose to share it; a link only where they named it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(made)
