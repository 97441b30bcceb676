"""A run that is on as a handful of numbers: the last reading of each curve, for those who collect numbers elsewhere."""

from __future__ import annotations

from pathlib import Path

from holter.diagnosis.core.examined import Examined, examined
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.ending.ending import ending_of
from holter.figures.charts import charts_of
from holter.figures.now import alarm_of
from holter.figures.shape import Channel
from holter.record.recent import recent

# (chart, channel) -> the gauge's name and what it says
GAUGES = {
    ("memory", "run"): ("memory_bytes", "Memory of the whole process tree."),
    ("device", "device"): ("device_memory_bytes", "Memory in use on the fullest device."),
    ("rate", "rate"): ("steps_per_second", "Steps per second, lately."),
    ("loss", "last"): ("loss", "The last loss that is known."),
    ("step", "data"): ("step_data_seconds", "Seconds of a step that wait for data."),
    ("step", "compute"): ("step_compute_seconds", "Seconds of a step in forward, backward and optimizer."),
    ("step", "other"): ("step_other_seconds", "Seconds of a step that are neither."),
    ("busy", "cpu"): ("cpu_percent", "Share of all processors that the run keeps busy."),
    ("busy", "device"): ("device_percent", "Share of time in which the busiest device works."),
    ("pressure", "memory"): ("memory_pressure_percent", "Share of time in which something waits for memory."),
    ("swap", "run"): ("swap_bytes", "What of the run is swapped out."),
}
LIMITS = {
    "memory": ("memory_limit_bytes", "The limit that stands against the memory."),
    "device": ("device_memory_limit_bytes", "The size of the device's memory."),
}
OTHERS = {
    "step": "The last step that was done.",
    "planned_steps": "Steps that are planned, where that is known.",
    "alarm": "1 while a hang or a forecast stands, else 0.",
}


def gauges_of(folder: Path) -> dict[str, float]:
    """The numbers that are known, by their names; read from the last moments of the record."""
    return gauges_in(examined(recent(folder)))


def gauges_in(table: Examined) -> dict[str, float]:
    """The same of a record that lies on the table already."""
    found: dict[str, float] = {"alarm": 1.0 if alarm_of(table) else 0.0}
    progress = progress_of(table)
    found |= {"step": float(progress.step)} if progress.step else {}
    found |= {"planned_steps": float(progress.planned)} if progress.planned else {}
    for chart in charts_of(table, ending_of(table)):
        if chart.limit and chart.key in LIMITS:
            found[LIMITS[chart.key][0]] = chart.limit
        for channel in chart.channels:
            last = _last(channel)
            if last is not None and (chart.key, channel.key) in GAUGES:
                found[GAUGES[chart.key, channel.key][0]] = last
    return found


def meanings() -> dict[str, str]:
    """What each gauge says."""
    return {**dict(GAUGES.values()), **dict(LIMITS.values()), **OTHERS}


def _last(channel: Channel) -> float | None:
    return next((value for value in reversed(channel.values) if value is not None), None)
