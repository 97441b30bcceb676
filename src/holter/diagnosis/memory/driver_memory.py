"""Memory that the driver holds for the run beyond what the framework has allocated or reserved."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.core.trend import trend_of
from holter.diagnosis.memory.memory import Points
from holter.record.events.timeline import DeviceMemory, Nvidia
from holter.units import share, size


@dataclass(frozen=True)
class DriverGrowth:
    """How far the driver's figure ran away from the framework's."""

    kind: str
    allocated: float
    driver: float
    rise: float
    total: float | None

    @property
    def alarming(self) -> bool:
        """Tell whether it comes to much, for a device whose size is known."""
        return bool(self.total) and self.driver >= 0.8 * (self.total or 0.0) and self.rise >= 0.2 * (self.total or 0.0)

    @property
    def words(self) -> str:
        of = f", {share(self.driver / self.total)} of the device" if self.total else ""
        return (
            f"the framework holds {size(self.allocated)} and no more than before, the driver {size(self.driver)}{of}: "
            f"{size(self.rise)} came between them"
        )


@once
def driver_growth(record: RecordLike) -> DriverGrowth | None:
    """Give the growth between driver and framework where the framework itself stood still; None where it did not."""
    lines = [line for line in record.of(DeviceMemory) if line.allocated is not None]
    metal = [(line.m, line.allocated or 0.0, driver) for line in lines if (driver := line.driver)]
    if metal:
        return _between("metal", metal, None)
    held = [(line.m, line.reserved or 0.0) for line in lines if line.reserved]
    times = [m for m, _ in held]
    found, total = [], None
    for m, reading in record.readings(Nvidia):
        for row in reading.rows:
            tree, at = row.tree, bisect_right(times, m)
            if tree and at and not row.index:
                found.append((m, held[at - 1][1], tree))
                total = row.total or total
    return _between("cuda", found, total)


def _between(kind: str, figures: list[tuple[float, float, float]], total: float | None) -> DriverGrowth | None:
    if len(figures) < 8:
        return None
    gap: Points = tuple((m, driver - own) for m, own, driver in figures)
    begun = len(figures) // 10  # the first readings are of a device that is being set up
    trend = trend_of(gap[begun:])
    own = [value for _, value, _ in figures[begun:]]
    if not trend.grows or max(own) - own[0] > 0.3 * trend.rise:
        return None
    _, allocated, driver = figures[-1]
    if trend.rise < max(64e6, 0.2 * driver):
        return None
    return DriverGrowth(kind, allocated, driver, trend.rise, total)
