"""Windows of steps: what is merged adds up, and a loss that is non-finite is told by its step."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holter.record import lines
from holter.record import ring_format as f
from holter.record.ring_reader import RingView
from holter.record.steps import devices, merge, window
from tests.record.rings import NS, ring, step_slot

numbers = st.floats(0, 1e3).map(lambda x: round(x * 1024) / 1024)  # exact in any order of adding


@st.composite
def neighbours(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Three windows of one process, one after another; some hold only a reading that came late."""
    found: list[dict[str, Any]] = []
    last = 0
    for index in range(3):
        n = draw(st.integers(0, 50))
        line: dict[str, Any] = {"k": "steps", "t": float(index), "m": float(index), "pid": 7, "n": n}
        if n:
            low, high = sorted((draw(numbers), draw(numbers)))
            line |= {"first": last + 1, "last": last + n, "sum": draw(numbers), "min": low, "max": high}
            last += n
        else:
            line |= {"first": max(1, last - 3), "last": max(1, last - 3)}
        for name in ("data", "forward", "validation", "lost", "grad_norm"):
            if draw(st.booleans()):
                line[name] = draw(numbers)
        if draw(st.booleans()):
            low, high = sorted((draw(numbers), draw(numbers)))
            line["loss"] = {"last": low, "min": low, "max": high}
        if draw(st.booleans()):
            line["bad_loss"] = draw(st.integers(1, 100))
        found.append(line)
    return found


@given(neighbours())
def test_merging_is_associative(windows: list[dict[str, Any]]) -> None:
    """A segment that is thinned twice tells the same as one that is thinned once."""
    a, b, c = windows

    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(neighbours())
def test_merging_conserves_counts_and_extremes(windows: list[dict[str, Any]]) -> None:
    """Steps and seconds add up, the shortest and longest stay, the first bad loss counts."""
    a, b, c = windows
    merged = merge(merge(a, b), c)
    with_steps = [line for line in windows if line["n"]]

    assert merged["n"] == sum(line["n"] for line in windows)
    assert merged.get("sum", 0) == sum(line.get("sum", 0) for line in windows)
    if with_steps:
        assert (merged["first"], merged["last"]) == (with_steps[0]["first"], with_steps[-1]["last"])
        assert merged["min"] == min(line["min"] for line in with_steps)
        assert merged["max"] == max(line["max"] for line in with_steps)
    bad = [line["bad_loss"] for line in windows if "bad_loss" in line]
    assert merged.get("bad_loss") == (min(bad) if bad else None)


def of(*bodies: bytes) -> dict[str, Any]:
    found = window(7, RingView(ring(list(bodies))).slots(), 1000.0)
    assert found is not None
    return found


def test_steps_of_a_second_become_one_window() -> None:
    """Ten steps of 0.1 s, with their times, phases and losses."""
    line = of(*(step_slot(n, n + 1, loss=10.0 - n) for n in range(10)))

    assert (line["n"], line["first"], line["last"]) == (10, 1, 10)
    assert line["sum"] == pytest.approx(1.0)
    assert line["forward"] == pytest.approx(0.5)
    assert line["loss"] == {"last": 1.0, "min": 1.0, "max": 10.0}
    assert line["t"] - line["m"] == 1000.0


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_told_by_its_step(loss: float) -> None:
    """The first such step is named; the losses that are numbers stay numbers."""
    line = of(
        step_slot(0, 1, loss=2.0),
        step_slot(1, 2, loss=loss, low=math.inf, high=-math.inf, bad_loss=2),
        step_slot(2, 3, loss=loss, low=math.inf, high=-math.inf, bad_loss=3),
    )

    assert line["bad_loss"] == 2
    assert line["loss"] == {"last": 2.0, "min": 2.0, "max": 2.0}


def test_a_window_whose_extremes_were_not_kept_holds_only_numbers() -> None:
    """Of skimmed steps only the last loss is known: no infinity reaches the record."""
    line = of(step_slot(0, 8, count=8, loss=0.5, low=math.inf, high=-math.inf, bad_loss=3))
    found, _bad = lines.parse(lines.dump(line))

    assert found[0]["loss"] == {"last": 0.5, "min": 0.5, "max": 0.5}
    assert merge(found[0], found[0])["loss"]["min"] == 0.5


def test_a_norm_that_is_no_number_is_told_by_its_step() -> None:
    """An infinite gradient norm is `bad_grad`, a finite one `grad_norm`."""
    line = of(step_slot(0, 1, flags=f.F_GRAD_KNOWN, grad_norm=math.inf), step_slot(1, 2))

    assert line["bad_grad"] == 1
    assert "grad_norm" not in line


def test_a_reading_that_came_late_moves_no_step() -> None:
    """A loss of step 3 that comes back after step 5 is a loss, and no step."""
    line = of(*(step_slot(n, n + 1) for n in range(5)), step_slot(5, 3, kind=f.LATE, count=0, loss=0.25))

    assert (line["n"], line["first"], line["last"]) == (5, 1, 5)
    assert line["loss"]["last"] == 0.25


def test_a_late_reading_alone_is_a_window_without_steps() -> None:
    """Merged with its neighbours it changes neither the first nor the last step."""
    alone = of(step_slot(0, 3, kind=f.LATE, count=0, loss=0.25))
    steps = of(*(step_slot(n, n + 1) for n in range(5)))

    assert alone["n"] == 0
    assert merge(steps, alone)["last"] == 5
    assert merge(alone, steps)["first"] == 1


def test_of_each_device_the_last_figures_count() -> None:
    """Two devices, each with its own last line."""
    body = f.BODY.pack
    nan5 = (math.nan,) * 5
    slots = [
        body(n, n * NS, 1, f.DEVICE, 0, 0, n % 2, 0, 100 + n, 200, 300, 400, 1, 2, *(0,) * 7, *nan5) for n in range(4)
    ]

    found = devices(7, RingView(ring(slots)).slots(), 0.0)

    assert [(line["device"], line["allocated"], line["ooms"]) for line in found] == [(0, 102, 2), (1, 103, 2)]
