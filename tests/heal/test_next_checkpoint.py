"""A disk without room for the next checkpoint: said before it is written, and never where it would fit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holter.diagnosis.forecast.engine import next_checkpoint
from holter.diagnosis.forecast.pace import Pace
from holter.record.events.agent import NoSpace
from tests.agent.agent_run import run
from tests.endings.conftest import case, small_disk  # noqa: F401 - fixtures
from tests.endings.ward import Case, as_text

GB = 1_000_000_000

# A checkpoint of 4 MB for each pass, on a disk of 16 MB: the fifth does not fit. `AFTER` is done after each.
SAVING = """
    import os, pathlib, sys, time
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(1000, 1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ["FOLDER"]
    for epoch in range(LAST):
        for step in range(PASS):
            loss = model(torch.randn(4, 1000)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.1 if epoch == LAST - 1 else 0.005)  # the last pass gives it time to look
        path = pathlib.Path(folder) / NAME
        torch.save(model.state_dict(), path)
        AFTER
    """


def saving(name: str, after: str = "pass", last: int = 5, steps: int = 30) -> str:
    text = SAVING.replace("NAME", name).replace("LAST", str(last)).replace("PASS", str(steps))
    return text.replace("AFTER", after)


def forecast(one: Case) -> list[dict[str, Any]]:
    return [event for event in one.holter.events("forecast", 1) if "checkpoint" in event["text"]]


@pytest.mark.torch
def test_it_is_said_before_the_save_that_fails(case: Callable[..., Case], small_disk: Path) -> None:  # noqa: F811
    """After the fourth of 4 MB, with less than that left; the run then dies of it, and had been told."""
    pytest.importorskip("torch")
    one = case(saving("f'{epoch}.pt'"))
    one.run(words=[sys.executable, one.script, str(small_disk)])

    assert one.code == 1, as_text(one)
    assert (one.first()["cause"], one.first()["grade"]) == ("disk-full", "supported"), as_text(one)
    assert one.holter.events("save-failed")[0]["path"] == str(small_disk)
    told = forecast(one)
    assert len(told) == 1
    assert told[0]["at_step"] == 120
    assert told[0]["text"].startswith("the next checkpoint of 4.0 MB, about step 150, will not fit: ")
    assert str(small_disk) in told[0]["text"]
    assert one.err.count("the next checkpoint of 4.0 MB") >= 1


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "after"),
    [("'last.pt'", "pass"), ("f'{epoch}.pt'", "epoch > 1 and os.unlink(os.path.join(folder, f'{epoch - 2}.pt'))")],
    ids=["one that is written over", "only the last two are kept"],
)
def test_one_that_will_fit_is_not_spoken_of(tmp_path: Path, small_disk: Path, name: str, after: str) -> None:  # noqa: F811
    """What is written over takes no room, and what is thrown away makes some."""
    pytest.importorskip("torch")
    done = run(tmp_path / "run", saving(name, after), FOLDER=str(small_disk))

    assert done.code == 0, done.err
    assert done.kind("no-room") == []


def event(**fields: Any) -> NoSpace:
    return NoSpace(path="/data", bytes=1.2 * GB, free=0.9 * GB, total=50 * GB, **fields)


@pytest.mark.parametrize(
    ("planned", "saves", "step", "told"),
    [(0, 1, 100, False), (0, 2, 100, True), (1000, 1, 100, True), (1000, 10, 950, False), (1000, 10, 900, True)],
    ids=["one, and no plan", "two, and no plan", "one of a plan", "the last of a plan", "the last but one"],
)
def test_it_is_said_where_a_next_one_is_to_come(planned: int, saves: int, step: int, told: bool) -> None:
    course = Pace()
    course._planned = planned
    found = next_checkpoint(event(saves=saves, step=step, every=100), course)

    assert (found is not None) == told
    if found is not None:
        assert found["text"] == (
            f"the next checkpoint of 1.2 GB, about step {step + 100:,}, will not fit: 900 MB are left on /data; "
            "make room there"
        )
