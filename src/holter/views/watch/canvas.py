"""Curves on a terminal: dots of braille, eight to a cell, each cell in the colour of the curve that came last."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

Points = Sequence[tuple[float, float]]

# The bit of each dot of a cell, by its row from the top and its column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLOCKS = " ▁▂▃▄▅▆▇█"
# Without colour, layers are told apart by their texture.
TEXTURES = "█▒░"


class Canvas:
    """A field of cells over a span of time and of values; what lies outside of them is not drawn."""

    def __init__(self, width: int, height: int, times: tuple[float, float], values: tuple[float, float]) -> None:
        self.width, self.height = width, height
        self._begin, self._per = times[0], (times[1] - times[0]) or 1.0
        self._low, self._span = values[0], (values[1] - values[0]) or 1.0
        self._bits = [[0] * width for _ in range(height)]
        self._signs = [[" "] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]

    def column(self, time: float) -> int:
        """The column of cells a time falls into; may lie outside."""
        return int((time - self._begin) / self._per * self.width)

    def row(self, value: float) -> int:
        """The row of cells a value falls into, from the top; may lie outside."""
        return self.height - 1 - int((value - self._low) / self._span * (self.height - 0.001))

    def curve(self, points: Points, style: str, *, every: int = 1) -> None:
        """Join points with a line; with `every` only each so many dots of it, for what is not measured."""
        last: tuple[int, int] | None = None
        for time, value in points:
            at = self._dot(time, value)
            if last is not None:
                self._join(last, at, style, every)
            elif every == 1:
                self._set(*at, style)
            last = at

    def rule(self, value: float, style: str) -> None:
        """A level that stands against the curves, behind them."""
        row = self.row(value)
        if 0 <= row < self.height:
            for column in range(self.width):
                if not self._bits[row][column]:
                    self._signs[row][column], self._styles[row][column] = "╌", style

    def mark(self, time: float, sign: str, style: str) -> None:
        """A sign at the top, at its time."""
        column = min(self.column(time), self.width - 1)
        if column >= 0:
            self._signs[0][column], self._styles[0][column], self._bits[0][column] = sign, style, 0

    def layers(self, heaps: Sequence[Sequence[float]], styles: Sequence[str], *, color: bool) -> None:
        """Fill each column with layers on top of one another; where two meet in a cell, both show."""
        for column in range(self.width):
            top, edges = 0.0, []
            for heap in heaps:
                top += heap[column]
                edges.append((top - self._low) / self._span * self.height * 8)
            for row in range(self.height):
                floor = (self.height - 1 - row) * 8
                if color:
                    self._meet(row, column, [edge - floor for edge in edges], styles)
                else:
                    kind = next((n for n, edge in enumerate(edges) if edge >= floor + 4), None)
                    self._signs[row][column] = TEXTURES[kind % 3] if kind is not None else " "

    def lines(self) -> list[Text]:
        made = []
        for bits, signs, styles in zip(self._bits, self._signs, self._styles, strict=True):
            line = Text()
            for dots, sign, style in zip(bits, signs, styles, strict=True):
                line.append(chr(0x2800 + dots) if dots else sign, style)
            made.append(line)
        return made

    def _meet(self, row: int, column: int, edges: list[float], styles: Sequence[str]) -> None:
        inside = [n for n, edge in enumerate(edges) if 0.5 <= edge < 7.5]
        above = next((n for n, edge in enumerate(edges) if edge >= 7.5), None)
        if inside:
            # Of several edges in one cell the lowest is drawn: there is room for two colours only.
            lower = inside[0]
            back = above if above is not None else inside[1] if len(inside) > 1 else None
            self._signs[row][column] = _BLOCKS[round(edges[lower])]
            self._styles[row][column] = styles[lower] + (f" on {styles[back]}" if back is not None else "")
        elif above is not None:
            self._signs[row][column], self._styles[row][column] = "█", styles[above]

    def _dot(self, time: float, value: float) -> tuple[int, int]:
        x = (time - self._begin) / self._per * (self.width * 2 - 1)
        y = (value - self._low) / self._span * (self.height * 4 - 1)
        most = 1 << 20  # far outside is far enough
        return round(max(-most, min(most, x))), round(max(-most, min(most, self.height * 4 - 1 - y)))

    def _join(self, start: tuple[int, int], end: tuple[int, int], style: str, every: int) -> None:
        (x0, y0), (x1, y1) = start, end
        wide, tall = self.width * 2, self.height * 4
        if max(x0, x1) < 0 or min(x0, x1) >= wide:
            return
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        # Only the part within the field is walked: a line may come from far outside of it.
        first = 0 if x0 >= 0 or x1 == x0 else int(steps * -x0 / (x1 - x0))
        until = steps if x1 < wide or x1 == x0 else int(steps * (wide - 1 - x0) / (x1 - x0)) + 1
        for n in range(first, min(until, first + 4 * (wide + tall)) + 1):
            if n % every == 0:
                self._set(round(x0 + (x1 - x0) * n / steps), round(y0 + (y1 - y0) * n / steps), style)

    def _set(self, x: int, y: int, style: str) -> None:
        if 0 <= x < self.width * 2 and 0 <= y < self.height * 4:
            row, column = y // 4, x // 2
            self._bits[row][column] |= _DOTS[y % 4][x % 2]
            self._styles[row][column] = style
