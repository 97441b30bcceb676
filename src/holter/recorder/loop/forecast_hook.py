"""Hands each tick's lines to whoever forecasts, and writes and says what comes back.

The recorder knows nothing of forecasts: a callable is handed in, made only once the command runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lines = list[dict[str, Any]]
Forecast = Callable[[dict[str, Any], Lines, Lines], Lines]


class ForecastHook:
    """One tick: the sample, what the agents said with it, and what is to be told of it."""

    def __init__(
        self, make: Callable[[], Forecast] | None, event: Callable[..., None], report: Callable[[str], None]
    ) -> None:
        self._make = make
        self._forecast: Forecast | None = None
        self._event = event
        self._report = report

    def look(self, sample: dict[str, Any], timeline: Lines, events: Lines) -> None:
        """Ask, record, say; whoever fails once is not asked again, and the guard tells why."""
        if self._forecast is None:
            if self._make is None:
                return
            make, self._make = self._make, None
            self._forecast = make()
        forecast, self._forecast = self._forecast, None
        forecasts = forecast(sample, timeline, events)
        self._forecast = forecast
        for one in forecasts:
            self._event("forecast", **one)
            self._report(str(one.get("text", "")))
