"""How high a loss is, against where it began and how low it has been."""

from __future__ import annotations

from holter.agent.heal.nonfinite_reason import Level


def test_a_state_is_worth_keeping_while_the_loss_is_about_as_low_as_it_was() -> None:
    """And not once it is on its way up."""
    level = Level()

    assert level.holds([])
    assert level.holds([10.0])
    assert level.holds([10.0, 2.0, 1.0, 1.0])
    assert not level.holds([40.0] * 16)
