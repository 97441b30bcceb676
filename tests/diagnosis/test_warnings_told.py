"""Warnings that went by: what Python printed of them is part of the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import exception, ordinary_run
from tests.endings.ward import Case

from holter.diagnosis.core.doctor import verdict

WARNS = """
import warnings

print("train.py:3: loss 0.25")
for _ in range(4):
    warnings.warn("the scale is 0", RuntimeWarning)
raise ValueError("the weights are lost")
"""


def warned(output: str) -> list[str]:
    """What the verdict on a run with this output and an exception says of warnings."""
    record = exception(ordinary_run(), 60, "ValueError", "no").exit(61, 1)
    record.output = output
    return [one.value for one in verdict(record).ending.evidence if one.what == "warning"]


def test_a_real_run_that_warned_before_it_failed_says_so(tmp_path: Path) -> None:
    """What Python wrote to stderr on the way is told beside the exception, and what only looks like it is not."""
    case = Case(tmp_path, WARNS).run()

    warnings = [one["value"] for one in case.verdict()["ending"]["evidence"] if one["what"] == "warning"]

    line = next(n for n, code in enumerate(case.text.splitlines(), 1) if "warnings.warn(" in code)
    assert warnings == [f"train.py:{line}: RuntimeWarning: the scale is 0"]


def test_a_warning_of_many_steps_is_told_once_and_the_last_three_count() -> None:
    """A filter that lets all of them through fills the output; the evidence stays short."""
    lines = [f"/home/u/train.py:{n}: RuntimeWarning: number {n}\n  x = f(x)\n" for n in (1, 2, 3, 4)]
    again = "/home/u/train.py:1: RuntimeWarning: number 1\n"

    assert warned("".join(lines) + again * 20) == [
        "train.py:3: RuntimeWarning: number 3",
        "train.py:4: RuntimeWarning: number 4",
        "train.py:1: RuntimeWarning: number 1 (21 times)",
    ]


def test_a_warning_beside_a_progress_bar_is_seen() -> None:
    """A bar ends its lines with a carriage return, and a warning may come right behind one."""
    assert warned("10%|#\r/venv/lib/python3.11/site-packages/torch/optim/lr.py:9: UserWarning: order\n") == [
        "lr.py:9: UserWarning: order"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeWarning: what a traceback ends with",
        "kernels/add.c:12: warning: unused variable",
        "train.py:12: loss 0.31",
        "see train.py:12: UserWarning: as it said before",
        "/home/u/train.py:3: FutureWarning: will be another default",
        "W1118 12:00:00 train.py:12] UserWarning: of a logger",
    ],
)
def test_look_alikes_are_no_warning(line: str) -> None:
    """Lines with a file or a class, and what is about releases to come."""
    assert warned(line + "\n") == []


def test_a_healthy_run_that_warned_stays_one_line() -> None:
    """A warning alone is no illness."""
    record = ordinary_run().exit(61, 0)
    record.output = "/home/u/train.py:3: RuntimeWarning: the scale is 0\n"

    diagnosis = verdict(record)

    assert diagnosis.healthy
    assert not [one for one in diagnosis.ending.evidence if one.what == "warning"]
