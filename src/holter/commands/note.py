"""holter note: write a note on a run."""

from __future__ import annotations

import sys

import click

from holter.commands._complete import complete_run


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.argument("text", required=False)
@click.option("--remove", is_flag=True, help="Take the note away.")
def command(run: str, text: str | None, remove: bool) -> None:
    """Write a note on RUN, one by its id or name, or a record's folder. Without TEXT, print the note.

    A new note takes the place of the old one. A run that is still on can have one too. Nothing that was recorded is
    changed.

    Exits with 0, 2 when the note is too long, 3 when there is no such run, 6 when the record is another user's or can't
    be written to.
    """
    from holter.errors import UsageError
    from holter.record.labels import Labels, change_labels, noted, read_labels
    from holter.record.reader import find
    from holter.views.plain import clean, encodable

    if remove and text is not None:
        raise UsageError("--remove takes no text", "Write a new note, or take the old one away")
    noted(Labels(), text or "")
    if text is not None and not text.strip():
        raise UsageError("the note is empty", f"To take the old one away: holter note {run} --remove")
    folder = find(run)
    if remove or text is not None:
        change_labels(folder, lambda labels: noted(labels, text or ""))
        print(f"{folder.name}: note {'taken away' if remove else 'written'}")
        return
    note = read_labels(folder).note
    if not note:
        print(f'{folder.name} has no note. Write one with: holter note {folder.name} "TEXT"')
    for row in note.splitlines():
        print(encodable(clean(row), sys.stdout))
