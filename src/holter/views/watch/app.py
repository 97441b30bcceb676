"""The app around the screens: colours of the terminal's own, keys that work everywhere, and nothing that is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from textual.app import App
from textual.binding import Binding

from holter.views.watch.help_screen import HelpScreen
from holter.views.watch.run_screen import RunScreen
from holter.views.watch.runs_screen import RunsScreen
from holter.views.watch.source import Rows, Watched


class WatchApp(App[None]):
    """The list of runs, and the run that was opened last."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "holter watch"
    CSS_PATH = "watch.tcss"
    BINDINGS = [  # noqa: RUF012 - Textual's own form
        Binding("question_mark", "help", "Keys", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, rows: Rows, watched: Callable[[str | Path], Watched], first: Path | None = None) -> None:
        # The terminal's own sixteen colours: they suit its background, and every terminal has them.
        super().__init__(ansi_color=True)
        self._rows, self._watched, self._first = rows, watched, first

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.push_screen(RunsScreen(self._rows, self.open_run))
        if self._first is not None:
            self.open_run(self._first)

    def open_run(self, run: str | Path) -> None:
        self.push_screen(RunScreen(self._watched(run), color=not self.no_color))

    def action_help(self) -> None:
        self.push_screen(HelpScreen())
