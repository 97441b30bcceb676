"""What is kept of steps: their time by phase is true, also where not every step is split into phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holter.agent.core import heartbeat
from holter.record.ring_format import DATA, FORWARD, OTHER
from holter.record.ring_reader import RingView
from holter.record.steps import window


class Loop:
    """A training loop in the time of a fake clock, as an adapter tells of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.split = 10**12, 0
        monkeypatch.setattr(heartbeat, "clock", lambda: self.now)
        self.ring = heartbeat.Ring(str(folder))
        self.beat = heartbeat.Beat(lambda: self.ring)
        self.beat.open()

    def run(self, steps: int, *waits: float) -> dict[str, Any]:
        """Each step waits for its batch, one of `waits` (ms) after another, and computes for 1 ms."""
        beat = self.beat
        beat.enter(OTHER)
        for step in range(steps):
            self._phase(DATA, waits[step % len(waits)])
            self._phase(FORWARD, 1.0)
            self.split += not beat.skim_until
            if not beat.skip():
                beat.step(0.5, 0.1, 0.0, 8, 0)
        beat.flush()
        found = window(1, RingView(self.ring.map).slots(), 0.0)
        assert found is not None
        return found

    def _phase(self, phase: int, ms: float) -> None:
        skimmed = self.beat.skim
        if not skimmed:
            self.beat.enter(phase)
        self.now += round(ms * 1e6)
        if not skimmed:
            self.beat.enter(OTHER)


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(tmp_path, monkeypatch)


@pytest.mark.parametrize(("workers", "wait"), [(2, 240.0), (4, 100.0), (8, 100.0), (16, 300.0)])
def test_batches_that_come_in_bursts_have_their_wait_counted(loop: Loop, workers: int, wait: float) -> None:
    """Every batch of the first worker is waited for, those of the others lie ready by then."""
    found = loop.run(400, wait, *[0.1] * (workers - 1))

    truly = 400 / workers * (wait + 0.1 * (workers - 1)) * 1e-3
    assert found["data"] == pytest.approx(truly, rel=0.1)


def test_of_short_steps_few_are_split_and_stand_for_the_others(loop: Loop) -> None:
    found = loop.run(4000, 1.0)

    assert loop.split < 4000 / 8 * 1.1
    assert found["n"] == 4000
    assert found["data"] == pytest.approx(4.0, rel=0.02)
    assert found["forward"] == pytest.approx(4.0, rel=0.02)


def test_one_long_step_among_short_ones_costs_a_few_and_no_more(loop: Loop) -> None:
    """As at the start of an epoch."""
    loop.run(4000, *[1.0] * 999, 1000.0)

    assert loop.split < 4000 / 8 * 1.5
