"""holter watch: the runs in the terminal, live."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holter.commands._complete import complete_run
from holter.errors import NotInstalled, UsageError

if TYPE_CHECKING:
    from holter.commands._runs import Runs


@click.command()
@click.argument("run", required=False, shell_complete=complete_run)
def command(run: str | None) -> None:
    """Show RUN on a live screen in the terminal: one by its id or name, or a record's folder.

    Without RUN it is the run that is on, or the list of all runs where there are several; Esc leads to the list. Keys
    are on the page behind ?. It only reads: q leaves, and no run is ever touched by it.

    Exits with 3 when there is no such run, 4 when the record can't be read, 8 when Textual is not installed.
    """
    if importlib.util.find_spec("textual") is None:
        raise NotInstalled("the live screen needs Textual, which is not installed", "pip install 'holter[watch]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("holter watch needs a terminal", "Without one: holter why, holter ls, holter serve")
    from holter.commands._runs import Runs
    from holter.own_process import own_process
    from holter.record.reader import find, read_meta
    from holter.record.recent import written
    from holter.views.watch.app import WatchApp
    from holter.views.watch.source import Watched
    from holter.views.web.reading import Reading
    from holter.views.web.watcher import Watcher

    runs = Runs()
    first = find(run) if run is not None else _the_one_that_is_on(runs)
    if first is not None:
        read_meta(first)
    reading = Reading(own_process("holter.figures.record_worker"))
    watcher = Watcher(runs, reading)

    def watched(which: str | Path) -> Watched:
        return Watched(which if isinstance(which, Path) else runs.folder(which), reading, written)

    watcher.start()
    try:
        WatchApp(watcher, watched, first).run()
    finally:
        watcher.stop()
        reading.close()


def _the_one_that_is_on(runs: Runs) -> Path | None:
    on = [run for run in runs.ids()[-50:] if runs.quick_row(run)["live"]]
    return runs.folder(on[0]) if len(on) == 1 else None
