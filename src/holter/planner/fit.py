"""From the drawn peak and a few measured ones to what is likely, and an interval around it.

What was measured at small sizes corrects what was drawn, by a constant and by a share per sample. The interval is
wider the further the size lies from what was measured, and the less the measurements agree with a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[int, int, int]  # rows, bytes as drawn, bytes as measured


@dataclass(frozen=True)
class Kind:
    """How far a device's predictions are off, as `make bench-plan` found it."""

    calibrated: float  # of the peak, where it was measured at small sizes
    blind: float  # where it was not
    most: float = 0.06  # what disagreement among measurements may add
    grain: float = 2e6  # bytes below which measurements differ by chance


CUDA = Kind(calibrated=0.015, blind=0.08)
CPU = Kind(calibrated=0.03, blind=0.15, grain=6e6)


@dataclass(frozen=True)
class Interval:
    low: int
    likely: int
    high: int

    def as_dict(self) -> dict[str, int]:
        return {"low": self.low, "likely": self.likely, "high": self.high}


@dataclass(frozen=True)
class Correction:
    """What measurements add to a drawing."""

    offset: float
    slope: float = 0.0
    disagreement: float = 0.0
    reach: int = 0  # the largest size that was measured; none, where nothing was
    kind: Kind = CUDA

    def at(self, rows: int, drawn: int, doubt: float = 0.0) -> Interval:
        """The interval at a size; `doubt` is what the drawing itself may be short of."""
        likely = drawn + self.offset + self.slope * rows
        wide = (self.kind.calibrated if self.reach else self.kind.blind) * likely
        further = rows / self.reach if self.reach else 1.0
        wide += min(self.kind.most * likely, self.disagreement * max(1.0, min(further, 8.0)))
        return Interval(int(likely - wide), int(likely), int(likely + wide + doubt))


def corrected(points: Sequence[Point], kind: Kind, unmeasured: float = 0.0) -> Correction:
    """Fit what was measured, less what was drawn, by a line in the batch size."""
    if not points:
        return Correction(unmeasured, kind=kind)
    ordered: list[Point] = sorted(points)
    rows = [float(point[0]) for point in ordered]
    rest = [float(measured - drawn) for _, drawn, measured in ordered]
    reach = ordered[-1][0]
    if reach == ordered[0][0]:
        return Correction(sum(rest) / len(rest), reach=reach, kind=kind)
    mean_rows, mean_rest = sum(rows) / len(rows), sum(rest) / len(rest)
    slope = sum((x - mean_rows) * (y - mean_rest) for x, y in zip(rows, rest)) / sum((x - mean_rows) ** 2 for x in rows)
    offset = mean_rest - slope * mean_rows
    off = max(abs(y - offset - slope * x) for x, y in zip(rows, rest))
    grown = abs(slope) * (rows[-1] - rows[0])
    if grown < kind.grain or off > 0.2 * grown or slope < 0:
        # No more than chance, or less with each sample: drawn on to large sizes it would become an error of its own.
        slope, offset = 0.0, rest[-1]
    return Correction(offset, slope, off, reach, kind)
