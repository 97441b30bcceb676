"""What the training did: its pace, its loss, and what a step's time went into."""

from __future__ import annotations

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.figures import pace
from holter.diagnosis.core.progress import progress_of
from holter.figures.shape import Chart, chart_of
from holter.record.events.timeline import Sample, StepWindow

_MOST_SPANS = 1500


def windows_of(record: Examined) -> list[StepWindow]:
    """The step windows of the process that speaks for the run."""
    pid = progress_of(record).pid
    return [line for line in record.of(StepWindow) if line.pid == pid and (line.n or 0) > 0]


def rate_chart(record: Examined, start: float) -> Chart | None:
    """Steps per second, with the silence at the end: a hang is a curve that falls to zero."""
    windows = windows_of(record)
    done, taken = sum(line.n or 0 for line in windows), sum(line.sum or 0.0 for line in windows)
    last = max((line.m for line in record.of(Sample)), default=0.0)
    if not windows or not done:
        return None
    length = max(last, windows[-1].m) - windows[0].m
    # A span holds three steps or a second: shorter ones would show the grid and not the pace.
    spans = int(min(_MOST_SPANS, length / max(1.0, 3 * taken / done)))
    found = pace(record, progress_of(record).pid, max(8, spans))
    if found is None:
        return None
    begin, span, values = found
    points = [(begin + (at + 0.5) * span, value) for at, value in enumerate(values)]
    return chart_of("rate", "Steps per second", "rate", start, [("rate", "steps per second", points)])


def loss_chart(record: Examined, start: float) -> Chart | None:
    """The loss as it was last known in each window, and the lowest and highest of the window."""
    losses = [(line.m, line.loss) for line in windows_of(record)]
    last = [(m, loss.last) for m, loss in losses if loss.last is not None]
    lowest = [(m, loss.min) for m, loss in losses if loss.min is not None]
    highest = [(m, loss.max) for m, loss in losses if loss.max is not None]
    lines = [("last", "loss", last)]
    if not last == lowest == highest:
        lines += [("min", "lowest", lowest), ("max", "highest", highest)]
    return chart_of("loss", "Loss", "number", start, lines)


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
