"""The charts of a run on one axis of time, in as many columns as there is room for; zoomed and moved with keys."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from holter.units import duration
from holter.views.watch.chart import chart_lines

_LEAST, _MOST = 5, 14  # rows of a chart
_ROOMY = 22  # rows of the pane from which on there is a line between charts
_GAP = 2
_SHORTEST = 2.0  # seconds: a narrower window shows nothing more


class ChartsPane(VerticalScroll):
    """Draws the charts of a document; asks for another window when the keys say so."""

    BINDINGS = [  # noqa: RUF012 - Textual's own form
        Binding("plus,equals_sign", "zoom(0.5)", "Zoom", key_display="+ −"),
        Binding("minus,underscore", "zoom(2.0)", show=False),
        Binding("left", "move(-0.25)", show=False),
        Binding("right", "move(0.25)", show=False),
        Binding("0", "whole", "Whole run", show=False),
    ]

    class Moved(Message):
        """Another window is to be shown."""

    def __init__(self, *, color: bool) -> None:
        super().__init__(id="charts")
        self._color = color
        self._document: dict[str, Any] | None = None
        self.window: tuple[float, float] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="drawn", markup=False)

    def show(self, document: dict[str, Any]) -> None:
        self._document = document
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    @property
    def columns(self) -> int:
        """How many readings a chart can show side by side."""
        return max(50, self._width() // self._across() * 2)

    def action_zoom(self, factor: float) -> None:
        """Towards what is last on the screen: with a run that is on, that is where one looks."""
        begin, end = self._full_span()
        left, right = self.window or (begin, end)
        length = max(_SHORTEST, (right - left) * factor)
        self._to(right - length, right)

    def action_move(self, share: float) -> None:
        begin, end = self.window or self._full_span()
        by = (end - begin) * share
        self._to(begin + by, end + by)

    def action_whole(self) -> None:
        self._to(*self._full_span())

    def _to(self, left: float, right: float) -> None:
        begin, end = self._full_span()
        length = right - left
        if length >= end - begin:
            self.window = None
        else:
            left = min(max(begin, left), end - length)
            self.window = (left, left + length)
        self._draw()
        self.post_message(self.Moved())

    def _full_span(self) -> tuple[float, float]:
        """From the start to the last reading; of a run that is on as far as its forecast, within reason."""
        if self._document is None:
            return 0.0, 1.0
        length = max(1.0, self._document["clock"]["length"])
        whens = [one["when"] for chart in self._document["charts"] for one in chart["ahead"][-1:]]
        forecast = max(whens, default=0.0) if self._document["run"]["live"] and self._document["now"]["alarm"] else 0.0
        return 0.0, max(length, min(forecast * 1.03, 2 * length))

    def _across(self) -> int:
        width = self._width()
        return max(1, min(3, width // 56 if width >= 112 else width // 34))

    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _draw(self) -> None:
        document, width = self._document, self._width()
        if document is None or width < 10 or not self.query("#drawn"):  # nor when it is being left
            return
        charts = document["charts"]
        if not charts:
            self.query_one("#drawn", Static).update(Text("no readings yet", "dim"))
            return
        across = min(self._across(), len(charts))
        each = (width - _GAP * (across - 1)) // across
        rows = -(-len(charts) // across)
        apart = 1 if self.size.height >= _ROOMY else 0
        tall = max(_LEAST, min(_MOST, (self.size.height - 1) // rows - apart))
        window, marks = self.window or self._full_span(), _marks(document)
        live = document["run"]["live"] and document["now"]["alarm"]
        lines: list[Text] = []
        for first in range(0, len(charts), across):
            drawn = [
                chart_lines(chart if live else {**chart, "ahead": []}, each, tall, window, marks, color=self._color)
                for chart in charts[first : first + across]
            ]
            lines += _beside(drawn, each, tall) + [Text()] * apart
        lines.append(_axis(window, each))
        self.query_one("#drawn", Static).update(Text("\n", no_wrap=True).join(lines))


def _beside(drawn: list[list[Text]], each: int, tall: int) -> list[Text]:
    """Charts in a row."""
    lines = []
    for n in range(tall):
        line = Text()
        for chart in drawn:
            part = chart[n].copy() if n < len(chart) else Text()
            part.truncate(each, pad=True)
            line.append_text(part).append(" " * _GAP)
        line.rstrip()
        lines.append(line)
    return lines


def _axis(window: tuple[float, float], width: int) -> Text:
    begin, end = (duration(time) if time > 0 else "0 s" for time in window)
    return Text(f"{' ' * 8}{begin}{end:>{max(1, width - 8 - len(begin))}}", "dim")


def _marks(document: dict[str, Any]) -> list[tuple[float, str, str]]:
    """Events and acts of healing, where they lie in time."""
    of_events = [(one["time"], "▾", "yellow") for one in document["events"] if one["time"] is not None]
    acts = [(one["time"], "▾", "green") for one in document["interventions"] if one["time"] is not None]
    return of_events + acts
