"""One chart as lines of a terminal: its title with the last reading, the curves against their limit, the legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from holter.units import duration, rate, size
from holter.views.plain import clean
from holter.views.watch.canvas import TEXTURES, Canvas

_AXIS = 8
_COLORS = ("cyan", "green", "magenta", "blue", "yellow")
_LAYERS = {"data": "yellow", "compute": "green", "other": "blue"}
_BRIEF_WORDS = {"waits for ": "", "data workers": "workers", "other processes": "others", "held by ": ""}
_DRAWN_FROM_SHARE = 0.4  # of the limit: from there on it is drawn, below it is only told


def value_words(value: float, unit: str) -> str:
    """A reading in its unit, as the other views say it."""
    if unit == "bytes":
        return size(value)
    if unit == "percent":
        return f"{value:.0f} %"
    if unit == "seconds":
        return duration(value)
    return rate(value) if unit == "rate" else f"{value:.4g}"


def last_of(channel: dict[str, Any]) -> float | None:
    """The last reading there is."""
    return next((value for value in reversed(channel["values"]) if value is not None), None)


def chart_lines(
    chart: dict[str, Any],
    width: int,
    height: int,
    window: tuple[float, float],
    marks: Sequence[tuple[float, str, str]] = (),
    *,
    color: bool = True,
) -> list[Text]:
    """Draw a chart of a document in so many columns and rows; the marks are times with a sign and a style."""
    legend = _legend(chart, width, color)
    rows = max(2, height - 1 - (1 if legend is not None else 0))
    low, high = _range(chart, window)
    canvas = Canvas(max(8, width - _AXIS), rows, window, (low, high))
    for ahead in chart["ahead"][-1:]:
        canvas.curve([(ahead["since"], ahead["used"]), (ahead["when"], ahead["limit"])], "yellow", every=2)
    if chart["stacked"]:
        canvas.layers(_heaps(chart, canvas.width, window), _styles(chart), color=color)
    else:
        for n, channel in reversed(list(enumerate(chart["channels"]))):
            known = [(t, v) for t, v in zip(chart["times"], channel["values"], strict=True) if v is not None]
            canvas.curve(known, _styles(chart)[n])
    if chart["limit"]:
        canvas.rule(chart["limit"]["value"], "red")
    for time, sign, style in marks:
        if window[0] <= time <= window[1]:
            canvas.mark(time, sign, style)
    lines = [_title(chart, width, color)]
    for n, line in enumerate(canvas.lines()):
        edge = high if n == 0 else low if n == rows - 1 else None
        edge_text = "" if edge is None else value_words(edge, chart["unit"]) if edge else "0"
        lines.append(Text.assemble((f"{edge_text:>{_AXIS - 1}} ", "dim"), line))
    return [*lines, legend] if legend is not None else lines


def _styles(chart: dict[str, Any]) -> list[str]:
    """A layer's colour goes by what it is; a curve's by its place."""
    if chart["stacked"]:
        return [_LAYERS.get(one["key"], "cyan") for one in chart["channels"]]
    return [_COLORS[n % len(_COLORS)] for n in range(len(chart["channels"]))]


def _title(chart: dict[str, Any], width: int, color: bool) -> Text:
    """The name; where one curve speaks for the chart its last reading, and what that is a part of."""
    title = Text(clean(chart["title"]), "bold")
    last = last_of(chart["channels"][0])
    if _speaks(chart) and last is not None:
        sign = f" {_sign(chart, 0, color)}" if len(chart["channels"]) > 1 else " "
        title.append(sign, f"not bold {_styles(chart)[0]}").append(f" {value_words(last, chart['unit'])}", "not bold")
        if chart["limit"]:
            full = last / chart["limit"]["value"]
            style = "red" if full > 0.9 else "yellow" if full > 0.75 else "not bold"
            title.append(f" of {size(chart['limit']['value'])}", style)
    title.truncate(width, overflow="ellipsis")
    return title


def _speaks(chart: dict[str, Any]) -> bool:
    """Whether the first curve stands for the whole chart."""
    return len(chart["channels"]) == 1 or (not chart["stacked"] and chart["key"] in ("memory", "device", "loss"))


def _sign(chart: dict[str, Any], n: int, color: bool) -> str:
    return TEXTURES[n % 3] if chart["stacked"] and not color else "■"


def _legend(chart: dict[str, Any], width: int, color: bool) -> Text | None:
    """Each curve's sign, name and last reading, but for one that the title has; what does not fit is left out whole."""
    line, styles = Text(), _styles(chart)
    for n, channel in enumerate(chart["channels"]):
        last = last_of(channel)
        if last is None or (n == 0 and _speaks(chart)):
            continue
        label = clean(channel["label"])
        for long, brief in _BRIEF_WORDS.items():
            label = label.replace(long, brief)
        entry = f"{label} {value_words(last, chart['unit'])}"
        if line.cell_len + cell_len(entry) + 2 > width:
            break
        line.append(_sign(chart, n, color), styles[n]).append(f" {entry} ", "dim")
    return line if line.cell_len else None


def _range(chart: dict[str, Any], window: tuple[float, float]) -> tuple[float, float]:
    """From where to where the values go: from zero, but for a loss, and up to the limit where it is near."""
    inside = [n for n, time in enumerate(chart["times"]) if window[0] <= time <= window[1]]
    if not inside:
        inside = list(range(len(chart["times"])))
    columns = [[one["values"][n] for one in chart["channels"] if one["values"][n] is not None] for n in inside]
    values = [sum(column) if chart["stacked"] else max(column) for column in columns if column]
    high, low = max(values, default=1.0), 0.0
    if chart["unit"] == "number":
        lowest = min((min(column) for column in columns if column), default=0.0)
        low = lowest if lowest < 0 or lowest > 0.3 * high else 0.0
    if chart["limit"] and (high > _DRAWN_FROM_SHARE * chart["limit"]["value"] or chart["ahead"]):
        high = max(high, chart["limit"]["value"])
    elif chart["unit"] == "percent":
        high = max(high, 100.0 if chart["key"] == "busy" else 10.0)
    return low, high if high > low else low + 1.0


def _heaps(chart: dict[str, Any], width: int, window: tuple[float, float]) -> list[list[float]]:
    """Each channel's value in each column: the mean of what lies there, else the one before."""
    begin, per = window[0], (window[1] - window[0]) / width or 1.0
    heaps = []
    for channel in chart["channels"]:
        sums, counts = [0.0] * width, [0] * width
        before: float | None = None
        for time, value in zip(chart["times"], channel["values"], strict=True):
            column = int((time - begin) / per)
            if value is None or column >= width:
                continue
            if column < 0:
                before = value
                continue
            sums[column] += value
            counts[column] += 1
        last = max((n for n in range(width) if counts[n]), default=-1)
        row = []
        for n in range(width):
            before = sums[n] / counts[n] if counts[n] else before
            row.append((before or 0.0) if n <= last else 0.0)
        heaps.append(row)
    return heaps
