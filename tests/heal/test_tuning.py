"""The number of parts is found by timing, within what fits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holter.agent.heal.chunk_tuning import Tuning


def settle(tuning: Tuning, seconds: Callable[[int], float], least: int = 1) -> list[int]:
    """Take steps until it is done, as a step of so many parts takes; gives the numbers that were tried."""
    tried: list[int] = []
    for _ in range(200):
        if tuning.done:
            return tried
        parts = tuning.parts
        if parts not in tried:
            tried.append(parts)
        if parts < least:
            tuning.did_not_fit(tuning.rows, -(-tuning.size // (2 * parts)))
        else:
            tuning.took(seconds(parts), lambda _rows: True)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("best", [2, 3, 4, 6, 8, 12])
def test_it_settles_on_the_quickest_number_of_parts(best: int) -> None:
    """From above and from below, though sizes do not divide evenly."""
    tuning = Tuning(240, 60, 1)
    settle(tuning, lambda parts: 1.0 + abs(parts - best) / best)

    assert tuning.parts == best


def test_fewer_parts_than_fit_are_tried_once_at_most() -> None:
    """A try that fails costs a step's time, and says how many it takes."""
    tuning = Tuning(64, 8, 1)
    tried = settle(tuning, lambda parts: float(parts), least=5)

    assert tuning.parts == 5
    assert tried.count(4) == 1
    assert not {2, 3} & set(tried)


def test_a_size_for_which_there_is_no_room_is_not_tried() -> None:
    """Where the room is known to be too small, not even a try is made."""
    tuning = Tuning(64, 8, 1)
    asked: list[int] = []
    while not tuning.done:
        asked.append(tuning.parts)
        tuning.took(float(tuning.parts), lambda rows: rows <= 8)

    assert min(asked) == 8


def test_a_part_never_has_fewer_samples_than_it_must() -> None:
    """BatchNorm can make nothing of a single one."""
    tuning = Tuning(8, 2, 2)
    tried = settle(tuning, lambda parts: 1.0 / parts)

    assert max(tried) == 4


def test_what_no_longer_fits_is_begun_anew() -> None:
    """Memory that others take later makes the parts smaller, and the search goes on from there."""
    tuning = Tuning(64, 16, 1)
    settle(tuning, lambda parts: float(parts), least=4)
    tuning.did_not_fit(tuning.rows, 8)

    assert not tuning.done
    assert tuning.rows == 8
