"""holter rm: delete records."""

from __future__ import annotations

import click

from holter.errors import HolterError


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def command(runs: tuple[str, ...]) -> None:
    """Delete the records of RUNs, each by its id or name. Files of the training itself are not touched.

    A run that is still being recorded is not deleted. Exits with 0 when all are deleted, 3 when there is no such run
    (then none is deleted), 1 when one could not be deleted.
    """
    from holter.errors import UnknownRun
    from holter.record import place
    from holter.record.kept import delete, kept_run
    from holter.record.reader import find
    from holter.units import size

    base = place.home()
    chosen = {}
    for name in runs:
        folder = find(name, base)
        if folder.parent != place.runs_folder(base):
            raise UnknownRun(f"{name!r} is not one of the runs in {base}", "See the runs with: holter ls")
        chosen[folder] = kept_run(folder)
    for run in chosen.values():
        if run.live:
            raise HolterError(f"{run.id} is still being recorded", "Nothing was deleted. End the run first")
    for folder, run in chosen.items():
        delete(folder)
        print(f"{run.id} deleted ({size(run.taken)})")
