"""holter rename: give a run another name."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from holter.commands._complete import complete_run


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.argument("name")
def command(run: str, name: str) -> None:
    """Call RUN by another NAME: one by its id or name, or a record's folder. It is found by that name from then on.

    An empty NAME brings back the one that it was started with. A run that is still on can be renamed too. Nothing that
    was recorded is changed.

    Exits with 0 when the run has the name, 2 when it can't be a name, 3 when there is no such run, 6 when the record is
    another user's or can't be written to.
    """
    from holter.errors import UsageError
    from holter.record.labels import NAME_LETTERS, Labels, change_labels
    from holter.record.place import is_run_id
    from holter.record.reader import find, read_meta
    from holter.views.plain import clean, encodable

    if is_run_id(name):
        raise UsageError(f"{name} is the id of a run, so no run can be called so", "Choose a name of another form")
    if len(name) > NAME_LETTERS or not name.isprintable():
        raise UsageError("this can't be a name", f"A name has up to {NAME_LETTERS} letters that can be seen")

    def changed(labels: Labels) -> Labels:
        return replace(labels, name=name)

    folder = find(run)
    change_labels(folder, changed)
    called = read_meta(folder).get("name")
    print(
        encodable(clean(f"{folder.name} is called {called!r}" if called else f"{folder.name} has no name"), sys.stdout)
    )
