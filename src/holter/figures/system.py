"""What the machine was at: swap, waits for memory, CPU and disk, and how busy its processors were."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holter.diagnosis.core.evidence import series
from holter.diagnosis.core.examined import Examined
from holter.figures.shape import Chart, chart_of
from holter.record.events.timeline import Apple, MachineMemory, Nvidia, Pressure, Processes


def swap_chart(record: Examined, start: float) -> Chart | None:
    """What of the run is swapped out, and what of the machine; no chart where nothing ever was."""
    run = series(record, Processes, lambda reading: reading.swap)
    machine = list(_machine_swap(record))
    if not any(value for _, value in (*run, *machine)):
        return None
    return chart_of("swap", "Swap", "bytes", start, [("run", "the run", run), ("machine", "the machine", machine)])


def _machine_swap(record: Examined) -> Iterator[tuple[float, float]]:
    for m, reading in record.readings(MachineMemory):
        total, free = reading.swap_total, reading.swap_free
        if total and free is not None:
            yield m, total - free
    yield from series(record, Apple, lambda reading: reading.swap_used)


def pressure_chart(record: Examined, start: float) -> Chart | None:
    """The share of time in which something waited, as the kernel counts it over ten seconds."""
    lines = [
        ("memory", "waits for memory", series(record, Pressure, lambda reading: reading.memory.some10)),
        ("io", "waits for disk", series(record, Pressure, lambda reading: reading.io.some10)),
        ("cpu", "waits for CPU", series(record, Pressure, lambda reading: reading.cpu.some10)),
    ]
    felt = [line for line in lines if any(value > 1 for _, value in line[2])]
    return chart_of("pressure", "Pressure", "percent", start, felt)


def busy_chart(record: Examined, start: float) -> Chart | None:
    """How much of the processors and of the busiest device the run kept busy."""
    cpus = record.facts.cpus or 1
    spent = [(m, used) for m, reading in record.readings(Processes) if (used := reading.cpu_s) is not None]
    cpu = [
        (after[0], 100 * (after[1] - before[1]) / (after[0] - before[0]) / cpus)
        for before, after in pairwise(spent)
        if after[0] - before[0] > 0.05 and after[1] >= before[1]
    ]
    device = []
    for m, reading in record.readings(Nvidia):
        ours = [row for row in reading.rows if (row.tree or 0) > 0]
        known = [busy for row in ours if (busy := row.util) is not None]
        if known:
            device.append((m, max(known)))
    return chart_of("busy", "Busy", "percent", start, [("cpu", "CPU", cpu), ("device", "device", device)])
