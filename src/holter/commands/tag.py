"""holter tag: write tags on a run."""

from __future__ import annotations

import click

from holter.commands._complete import complete_run


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take these tags away.")
def command(run: str, tags: tuple[str, ...], remove: bool) -> None:
    """Write tags on RUN, one by its id or name, or a record's folder. `holter ls --tag TAG` finds it by them.

    A run that is still on can be tagged too. Nothing that was recorded is changed.

    Exits with 0 when the tags are written, 2 when one can't be a tag, 3 when there is no such run, 6 when the record is
    another user's or can't be written to.
    """
    from holter.record.labels import Labels, change_labels, tagged
    from holter.record.reader import find

    add, gone = ((), tags) if remove else (tags, ())
    tagged(Labels(), add, gone)  # a tag that can't be one is told before it is told that there is no such run
    folder = find(run)
    written = change_labels(folder, lambda labels: tagged(labels, add, gone)).tags
    print(f"{folder.name}: {', '.join(written) or 'no tags'}")
