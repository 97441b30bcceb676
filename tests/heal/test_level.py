"""How high a loss is, against where it began and how low it has been."""

from __future__ import annotations

import pytest

from holter.agent.heal.nonfinite_reason import Level


def test_a_state_is_worth_keeping_while_the_loss_is_about_as_low_as_it_was() -> None:
    level = Level()

    assert level.holds([])
    assert level.holds([10.0])
    assert level.holds([10.0, 2.0, 1.0, 1.0])
    assert not level.holds([40.0] * 16)


@pytest.mark.parametrize(
    ("losses", "ran_off"),
    [
        ([5000.0] * 16, True),
        ([5000.0] * 15, False),  # too few to tell
        ([2.0] * 10 + [1e9] * 6, False),  # spikes
        ([200.0] * 16, False),  # bad, but such a loss may come down again
        ([1e30] * 4 + [1e12] * 12, True),
    ],
    ids=["far above", "few", "spikes", "above", "coming down from afar"],
)
def test_a_loss_has_run_off_when_it_stays_far_above_where_it_began(losses: list[float], ran_off: bool) -> None:
    level = Level()
    level.holds([10.0])

    assert level.ran_off(losses) is ran_off
    assert level.ran_off(losses, again=True) is (ran_off or losses == [200.0] * 16)
