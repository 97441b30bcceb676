"""What the machine was at: swap, waits for memory, CPU and disk, and how busy its processors were."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.fields import number, part, rows
from holter.figures.shape import Chart, chart_of


def swap_chart(record: Examined, start: float) -> Chart | None:
    """What of the run is swapped out, and what of the machine; no chart where nothing ever was."""
    run = [(m, swap) for m, reading in record.samples("processes") if (swap := number(reading, "swap")) is not None]
    machine = list(_machine_swap(record))
    if not any(value for _, value in (*run, *machine)):
        return None
    return chart_of("swap", "Swap", "bytes", start, [("run", "the run", run), ("machine", "the machine", machine)])


def _machine_swap(record: Examined) -> Iterator[tuple[float, float]]:
    for m, reading in record.samples("memory"):
        total, free = number(reading, "swap_total"), number(reading, "swap_free")
        if total and free is not None:
            yield m, total - free
    for m, reading in record.samples("apple"):
        used = number(reading, "swap_used")
        if used is not None:
            yield m, used


def pressure_chart(record: Examined, start: float) -> Chart | None:
    """The share of time in which something waited, as the kernel counts it over ten seconds."""
    lines = []
    for key, label in (("memory", "memory"), ("io", "disk"), ("cpu", "CPU")):
        points = [
            (m, waited)
            for m, reading in record.samples("pressure")
            if (waited := number(part(reading, key), "some10")) is not None
        ]
        if any(value > 1 for _, value in points):
            lines.append((key, f"waits for {label}", points))
    return chart_of("pressure", "Pressure", "percent", start, lines)


def busy_chart(record: Examined, start: float) -> Chart | None:
    """How much of the processors and of the busiest device the run kept busy."""
    cpus = number(record.meta, "cpus") or 1.0
    spent = [(m, used) for m, reading in record.samples("processes") if (used := number(reading, "cpu_s")) is not None]
    cpu = [
        (after[0], 100 * (after[1] - before[1]) / (after[0] - before[0]) / cpus)
        for before, after in pairwise(spent)
        if after[0] - before[0] > 0.05 and after[1] >= before[1]
    ]
    device = []
    for m, reading in record.samples("nvidia"):
        ours = [row for row in rows(reading, "list") if (number(row, "tree") or 0) > 0]
        known = [busy for row in ours if (busy := number(row, "util")) is not None]
        if known:
            device.append((m, max(known)))
    return chart_of("busy", "Busy", "percent", start, [("cpu", "CPU", cpu), ("device", "device", device)])
