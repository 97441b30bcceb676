"""holter tag: write tags on a run."""

from __future__ import annotations

from dataclasses import replace

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
    from holter.errors import UsageError
    from holter.record.labels import MOST_TAGS, TAG_LETTERS, Labels, change_labels, tag_of
    from holter.record.reader import find
    from holter.units import count

    for tag in tags:
        if tag_of(tag) != "-".join(tag.split()) or not tag.strip():
            raise UsageError(f"{tag[:60]!r} can't be a tag", f"A tag has 1 to {TAG_LETTERS} letters that can be seen")
    given = [tag_of(tag) for tag in tags]

    def changed(labels: Labels) -> Labels:
        kept = [tag for tag in labels.tags if tag not in given]
        every = kept if remove else [*dict.fromkeys([*labels.tags, *given])]
        if len(every) > MOST_TAGS:
            raise UsageError(f"that makes {count(len(every))} tags; {MOST_TAGS} fit", "Take some away with: --remove")
        return replace(labels, tags=tuple(every))

    folder = find(run)
    written = change_labels(folder, changed).tags
    print(f"{folder.name}: {', '.join(written) or 'no tags'}")
