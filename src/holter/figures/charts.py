"""Every chart of a run: its memory by role and the device's, its pace, its loss, what a step's time went into, and what
the machine was at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from holter.diagnosis.core.evidence import series
from holter.diagnosis.core.examined import Examined, examined
from holter.diagnosis.core.progress import last_sample, progress_of, windows_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.diagnosis.memory.memory import MemoryCurve, allocated_curve, device_curve, memory_curve
from holter.figures.clock import Clock, clock_of
from holter.figures.shape import Ahead, Chart, Nonfinite, Points, Readings, chart_of, thin
from holter.finding import Ending
from holter.record.events.agent import AgentHello
from holter.record.events.recorder import ForecastTold
from holter.record.events.timeline import Apple, MachineMemory, Nvidia, Pressure, Processes, StepWindow
from holter.units import size

_MOST_SPANS = 1500
_MOST_NONFINITE = 100  # spans of a loss that is non-finite now and then


def charts_of(record: RecordLike, ending: Ending, clock: Clock | None = None) -> list[Chart]:
    """Every chart that the record has readings for, in the order they are shown."""
    table = examined(record)
    start = (clock or clock_of(table)).start
    made = (
        memory_chart(table, ending, start),
        device_chart(table, start),
        rate_chart(table, start),
        loss_chart(table, start),
        step_chart(table, start),
        busy_chart(table, start),
        pressure_chart(table, start),
        swap_chart(table, start),
    )
    return [chart for chart in made if chart is not None]


def charts_json(charts: list[Chart], columns: int, begin: float | None, end: float | None) -> list[dict[str, Any]]:
    """The charts between two times, thinned to so many columns of pixels."""
    return [thin(chart, columns, begin, end).as_json() for chart in charts]


def rate_chart(record: Examined, start: float) -> Chart | None:
    """Steps per second, with the silence at the end: a hang is a curve that falls to zero."""
    windows = windows_of(record)
    done, taken = sum(line.n or 0 for line in windows), sum(line.sum or 0.0 for line in windows)
    last = last_sample(record) or 0.0
    if not windows or not done:
        return None
    length = max(last, windows[-1].m) - windows[0].m
    # A span holds three steps or a second: shorter ones would show the grid and not the pace.
    spans = int(min(_MOST_SPANS, length / max(1.0, 3 * taken / done)))
    found = pace(record, max(8, spans))
    if found is None:
        return None
    begin, span, values = found
    points = [(begin + (at + 0.5) * span, value) for at, value in enumerate(values)]
    return chart_of("rate", "Steps per second", "rate", start, [("rate", "steps per second", points)])


def loss_chart(record: Examined, start: float) -> Chart | None:
    """The loss as it was last known in each window, its lowest and highest there, and where it was NaN or infinite."""
    pid = progress_of(record).pid
    known = [
        line
        for line in record.of(StepWindow)
        if line.pid == pid and (line.bad_loss is not None or (line.n and line.loss.last is not None))
    ]
    # Where it was non-finite the curve is broken, and not drawn on to the next number.
    last = [(line.m, line.loss.last) for line in known]
    lowest = [(line.m, line.loss.min) for line in known]
    highest = [(line.m, line.loss.max) for line in known]
    lines: list[tuple[str, str, Readings]] = [("last", "loss", last)]
    if not last == lowest == highest:
        lines += [("min", "lowest", lowest), ("max", "highest", highest)]
    return chart_of("loss", "Loss", "number", start, lines, nonfinite=_nonfinite(known, start))


def _nonfinite(windows: list[StepWindow], start: float) -> tuple[Nonfinite, ...]:
    """From when to when the loss was NaN or infinite, each time with its first step."""
    found: list[Nonfinite] = []
    before = start
    for line in windows:
        # It was a number up to the window before; a reading that came late tells of a time before itself.
        begun = max(before, line.m - (line.sum or 0.0)) - start
        if line.bad_loss is not None:
            if found and found[-1].until >= before - start:
                found[-1] = replace(found[-1], until=line.m - start)
            else:
                found.append(Nonfinite(begun, line.m - start, line.bad_loss))
        before = line.m
    return tuple(found[-_MOST_NONFINITE:])


def step_chart(record: Examined, start: float) -> Chart | None:
    """Seconds per step: waiting for data, computing, and the rest."""
    data, compute, other = [], [], []
    for line in windows_of(record):
        m, n = line.m, line.n or 1.0
        total, waited = line.sum, line.data or 0.0
        if total is None:
            continue
        computed = (line.forward or 0.0) + (line.backward or 0.0) + (line.optimizer or 0.0)
        data.append((m, waited / n))
        compute.append((m, computed / n))
        other.append((m, max(0.0, total - waited - computed) / n))
    lines = [("data", "data", data), ("compute", "compute", compute), ("other", "other", other)]
    return chart_of(
        "step", "Time per step", "seconds", start, [one for one in lines if any(value for _, value in one[2])],
        stacked=True,
    )  # fmt: skip


_COUNTS = 0.02  # of the largest role: the shell that started it is not worth a line
_ROLES = (("trainer", "trainer"), ("worker", "data workers"), ("other", "other processes"))


def memory_chart(record: Examined, ending: Ending, start: float) -> Chart | None:
    """The run's memory as the verdict counts it, and the resident part of each role."""
    curve = shown_memory(record, ending)
    lines: list[tuple[str, str, Points]] = [("run", "the run", curve.points if curve is not None else ())]
    by_role = _by_role(record, curve)
    if len(by_role) > 1 or curve is None:
        lines += [(role, label, by_role[role]) for role, label in _ROLES if role in by_role]
    return chart_of(
        "memory", "Memory", "bytes", start, lines,
        **_limit(curve), ahead=_forecasts(record, "memory", start),
    )  # fmt: skip


def device_chart(record: Examined, start: float) -> Chart | None:
    """The fullest device by its driver, and what the framework itself holds there."""
    used, held = device_curve(record), allocated_curve(record)
    lines = [
        ("device", "the device", used.points if used is not None else ()),
        ("allocated", "held by tensors", held.points if held is not None else ()),
    ]
    return chart_of(
        "device", "Device memory", "bytes", start, lines,
        **_limit(used), ahead=_forecasts(record, "device-memory", start),
    )  # fmt: skip


def _limit(curve: MemoryCurve | None) -> dict[str, object]:
    if curve is None or not curve.limit:
        return {}
    return {"limit": curve.limit, "limit_label": f"{curve.limit_words}, {size(curve.limit)}"}


def _by_role(record: Examined, curve: MemoryCurve | None) -> dict[str, list[tuple[float, float]]]:
    """Each role's part of the run's memory, by what its processes have resident; a role that hardly counts is none.

    Pages that several processes share stand in each one's own count. Where they add up to more than the run holds,
    each role has its share of that.
    """
    roles = {event.pid: event.role for event in record.of(AgentHello)}
    held_at = dict(curve.points) if curve is not None else {}
    end = curve.points[-1][0] if curve is not None else float("inf")
    found: dict[str, list[tuple[float, float]]] = {}
    for m, reading in record.readings(Processes):
        if m > end:
            break
        held: dict[str, float] = defaultdict(float)
        for row in reading.rows:
            role = roles.get(row.pid, "")
            held[role if role in ("trainer", "worker") else "other"] += (row.rss or 0.0) + (row.swap or 0.0)
        factor = min(1.0, held_at.get(m, float("inf")) / (sum(held.values()) or 1.0))
        for role, value in held.items():
            found.setdefault(role, []).append((m, value * factor))
    most = {role: max(value for _, value in points) for role, points in found.items()}
    return {role: points for role, points in found.items() if most[role] > _COUNTS * max(most.values())}


def _forecasts(record: Examined, what: str, start: float) -> tuple[Ahead, ...]:
    """Every forecast of this kind, as it was told; what was taken back stays: it was on the screen."""
    found = []
    began = record.facts.started or 0.0
    for event in record.of(ForecastTold):
        used, limit, when, early, late = event.used, event.limit, event.when, event.earliest, event.latest
        if event.what != what or used is None or limit is None or when is None or early is None or late is None:
            continue
        found.append(Ahead(event.m - start, used, limit, when - began, early - began, late - began))
    return tuple(found)


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


def shown_memory(record: RecordLike, ending: Ending) -> MemoryCurve | None:
    """Give the memory that bears on how the run ended: what ran out, or the run's own up to its end."""
    memory, end = memory_curve(record), ended_at(record)
    ran_out = exhaustion_of(record, ending)
    if ran_out is not None and ran_out.curve is not None and not ran_out.on_device:
        return ran_out.curve
    return memory.until(end) if memory is not None and end is not None else memory


def pace(record: RecordLike, spans: int) -> tuple[float, float, tuple[float, ...]] | None:
    """Count the steps of each span of time, the silence at the end with them: a hang is a curve that falls to zero.

    Gives when the first span begins, how long each is, and the steps per second in it.
    """
    windows = windows_of(record)
    last = last_sample(record) or 0.0
    if len(windows) < 4:
        return None
    begin = windows[0].m
    span = (max(last, windows[-1].m) - begin) / spans
    if span <= 0:
        return None
    done = [0.0] * spans
    for line in windows[1:]:
        # A window's steps lie between it and the one before; they are laid evenly over that time.
        end, took = line.m, max(line.sum or 0.0, 1e-6)
        first, until = int((max(begin, end - took) - begin) / span), int((end - begin) / span)
        for at in range(max(0, first), min(until, spans - 1) + 1):
            low, high = max(end - took, begin + at * span), min(end, begin + (at + 1) * span)
            done[at] += (line.n or 0.0) * max(0.0, high - low) / took
    return begin, span, tuple(n / span for n in done)
