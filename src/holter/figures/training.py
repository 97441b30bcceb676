"""What the training did: its pace, its loss, and what a step's time went into."""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.fields import moment, number, part, whole
from holter.diagnosis.core.figures import pace
from holter.diagnosis.core.progress import progress_of
from holter.figures.shape import Chart, chart_of

_MOST_SPANS = 1500
_COMPUTE = ("forward", "backward", "optimizer")


def windows_of(record: Examined) -> list[dict[str, Any]]:
    """The step windows of the process that speaks for the run."""
    pid = progress_of(record).pid
    return [line for line in record.lines("steps") if whole(line, "pid") == pid and (number(line, "n") or 0) > 0]


def rate_chart(record: Examined, start: float) -> Chart | None:
    """Steps per second, with the silence at the end: a hang is a curve that falls to zero."""
    windows = windows_of(record)
    done, taken = (sum(number(line, key) or 0.0 for line in windows) for key in ("n", "sum"))
    last = max((moment(line) for line in record.lines("sample")), default=0.0)
    if not windows or not done:
        return None
    length = max(last, moment(windows[-1])) - moment(windows[0])
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
    lines = []
    for key, label in (("last", "loss"), ("min", "lowest"), ("max", "highest")):
        known = [
            (moment(line), value)
            for line in windows_of(record)
            if (value := number(part(line, "loss"), key)) is not None
        ]
        lines.append((key, label, known))
    if lines[0][2] == lines[1][2] == lines[2][2]:
        lines = lines[:1]
    return chart_of("loss", "Loss", "number", start, lines)


def step_chart(record: Examined, start: float) -> Chart | None:
    """Seconds per step: waiting for data, computing, and the rest."""
    data, compute, other = [], [], []
    for line in windows_of(record):
        m, n = moment(line), number(line, "n") or 1.0
        total, waited = number(line, "sum"), number(line, "data") or 0.0
        if total is None:
            continue
        computed = sum(number(line, key) or 0.0 for key in _COMPUTE)
        data.append((m, waited / n))
        compute.append((m, computed / n))
        other.append((m, max(0.0, total - waited - computed) / n))
    lines = [("data", "data", data), ("compute", "compute", compute), ("other", "other", other)]
    return chart_of(
        "step", "Time per step", "seconds", start, [one for one in lines if any(value for _, value in one[2])],
        stacked=True,
    )  # fmt: skip
