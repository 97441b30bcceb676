"""One run: its figures, its charts, and what was found, as they come."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from holter.views.plain import clean
from holter.views.watch.charts_pane import ChartsPane
from holter.views.watch.source import Unreadable, Watched
from holter.views.watch.words import head_of, words_of

_TICK = 0.5
_WIDE_COLUMNS = 120


class RunScreen(Screen[None]):
    """Shows a run until it is left; a run that ends while it is watched stays, with its verdict."""

    BINDINGS = [  # noqa: RUF012 - Textual's own form
        Binding("escape,backspace", "leave", "Runs"),
        Binding("tab", "app.focus_next", "Pane"),
        Binding("enter", "enlarge", "Enlarge"),
    ]

    def __init__(self, watched: Watched, *, color: bool) -> None:
        super().__init__()
        self._watched, self._color = watched, color
        self._asking = False
        self._known: set[str] | None = None
        self.document: dict[str, Any] | None = None

    def compose(self) -> ComposeResult:
        yield Static("reading the record …", id="head", markup=False)
        with Container(id="body"):
            yield ChartsPane(color=self._color)
            with VerticalScroll(id="words"):
                yield Static(id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#charts").focus()
        self.set_interval(_TICK, self.look)
        self.call_after_refresh(self.look)

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE_COLUMNS, "wide")
        if self.document is not None:
            self._head(self.document)

    def on_charts_pane_moved(self) -> None:
        self.look()

    def action_leave(self) -> None:
        if self.has_class("only-charts") or self.has_class("only-words"):
            self.remove_class("only-charts", "only-words")
        else:
            self.app.pop_screen()

    def action_enlarge(self) -> None:
        """The pane that has the focus, over the whole screen; once more to go back."""
        pane = "only-words" if self.query_one("#words").has_focus else "only-charts"
        was = self.has_class(pane)
        self.remove_class("only-charts", "only-words")
        self.set_class(not was, pane)

    def look(self) -> None:
        """Ask for the run as the panes want it, unless a question is still on its way; the next tick asks again."""
        panes = self.query(ChartsPane)
        if panes and not self._asking:
            charts, self._asking = panes.first(), True
            self._ask(charts.columns, charts.window)

    @work(thread=True)
    def _ask(self, columns: int, window: tuple[float, float] | None) -> None:
        """Ask the record worker, apart from the screen: a large record must not keep the keys from working."""
        worker = get_current_worker()
        answer: Callable[[], None] | None = None
        try:
            found = self._watched.look(columns, window)
            answer = partial(self.show, found) if found is not None else None
        except Unreadable as error:
            answer = partial(self._unreadable, str(error))
        finally:
            self._asking = False
        if answer is not None and not worker.is_cancelled:
            self.app.call_from_thread(answer)

    def show(self, document: dict[str, Any]) -> None:
        if not self.query("#said"):
            return  # the answer has come when the screen was being left
        self.document = document
        self._head(document)
        self.query_one(ChartsPane).show(document)
        self.query_one("#said", Static).update(words_of(document))
        self._notify_new(document)

    def _head(self, document: dict[str, Any]) -> None:
        self.query_one("#head", Static).update(head_of(document, self.size.width - 2))

    def _notify_new(self, document: dict[str, Any]) -> None:
        """A finding that was not there at the first look is told apart, wherever one has scrolled to."""
        found = {one["cause"]: clean(one["claim"]) for one in document["findings"]}
        if self._known is not None:
            for cause in found.keys() - self._known:
                self.notify(found[cause], title=clean(cause), severity="warning", timeout=8, markup=False)
        self._known = (self._known or set()) | found.keys()

    def _unreadable(self, why: str) -> None:
        if not self.query("#said"):
            return
        self.query_one("#head", Static).update(Text(f"✗ {clean(self._watched.folder.name)}", "bold red"))
        self.query_one("#said", Static).update(Text(clean(why)))
