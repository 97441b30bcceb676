"""The keys, and what the signs mean."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

_KEYS = """\
Keys

  ↑ ↓  PgUp PgDn   choose a run; scroll the pane
  Enter            open the run; enlarge the pane
  Esc              back to the runs
  Tab              the other pane
  +  −             zoom in and out in time
  ←  →             move in time
  0                the whole run
  ?                this page
  q  Ctrl-C        leave; no run is touched by it

Charts

  ╌╌╌   the limit
  ⠄⠂⠁   the forecast
  ▾     an event; green: an act of --heal

Any key closes this page."""


class HelpScreen(ModalScreen[None]):
    """Closed by any key."""

    BINDINGS = [Binding("escape,q,question_mark", "dismiss", show=False)]  # noqa: RUF012 - Textual's own form

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(_KEYS, markup=False)

    def on_key(self, event: object) -> None:  # noqa: ARG002 - Textual's own form
        self.dismiss()
