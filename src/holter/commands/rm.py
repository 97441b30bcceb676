"""holter rm: delete records."""

from __future__ import annotations

import click

from holter.commands._complete import complete_run
from holter.errors import HolterError


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
def command(runs: tuple[str, ...]) -> None:
    """Delete the records of RUNs, each by its id or name. Files of the training itself are not touched.

    A run that is still being recorded is not deleted, nor one whose recorder was killed within the last ten minutes.
    Exits with 0 when all are deleted, 3 when there is no such run (then none is deleted), 1 when one could not be
    deleted.
    """
    from holter.errors import UnknownRun
    from holter.record import place
    from holter.record.kept import delete, kept_run, refuse_if_live
    from holter.record.reader import find, named
    from holter.units import size

    base = place.home()
    chosen = {}
    for name in runs:
        folder = find(name, base)
        called_so = list(named(name, base)) if folder.name != name else []
        if len(called_so) > 1:
            ids = ", ".join(other.name for other in called_so)
            raise HolterError(f"{len(called_so)} runs are called {name!r}", f"Nothing was deleted. Choose by id: {ids}")
        if folder.parent != place.runs_folder(base):
            raise UnknownRun(f"{name!r} is not one of the runs in {base}", "See the runs with: holter ls")
        chosen[folder] = kept_run(folder)
    for run in chosen.values():
        refuse_if_live(run)
    for folder, run in chosen.items():
        delete(folder)
        print(f"{run.id} deleted ({size(run.taken)})")
