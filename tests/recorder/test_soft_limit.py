"""The soft wall stands where the room really ends, though the process takes and frees much between two readings."""

from __future__ import annotations

from pathlib import Path

from holter.recorder.launch.soft_limit_linux import LimitedProcess

MB = 1 << 20
END = 1000 * MB  # of all that the run may use
OTHERS = 100 * MB


def limit_of(process: LimitedProcess, *ticks: tuple[int, int, int]) -> float:
    """Where the wall is after some readings: what the process uses, has asked for, and all together, in MB."""
    soft_limit = 0
    for used, data, together in ticks:
        soft_limit = process.place(used * MB, data * MB, together * MB, END, soft_limit)
        process._soft_limit = soft_limit
    return soft_limit / MB


def test_it_stands_where_the_process_and_all_others_together_would_fill_the_limit() -> None:
    """1,000 MB, of which others use 100."""
    assert limit_of(LimitedProcess(Path()), (300, 300, 400)) == 900


def test_a_step_that_frees_its_memory_between_two_readings_moves_it_for_no_longer_than_a_reading() -> None:
    """All together was read at the step's peak, the process after it."""
    assert limit_of(LimitedProcess(Path()), (300, 300, 400), (300, 300, 700), (310, 310, 410)) == 900


def test_others_that_grow_are_believed_after_a_second_look() -> None:
    """A data worker has started."""
    assert limit_of(LimitedProcess(Path()), (300, 300, 400), (300, 300, 600), (300, 300, 600)) == 700


def test_memory_that_was_freed_may_be_used_again_and_gives_no_room() -> None:
    """Only what never was touched comes on top."""
    assert limit_of(LimitedProcess(Path()), (300, 340, 400), (200, 340, 300), (250, 340, 350)) == 940


def test_of_a_tidy_process_what_was_given_back_is_room() -> None:
    """Its heap was trimmed, and its tensors have pages of their own."""
    process = LimitedProcess(Path())
    process.tidy = True

    assert limit_of(process, (200, 340, 300), (200, 340, 300), (200, 340, 300)) == 1040


def test_a_tensor_that_is_just_being_filled_gives_no_room() -> None:
    """It was asked for, and is not touched yet."""
    process = LimitedProcess(Path())
    process.tidy = True

    assert limit_of(process, (300, 310, 400), (300, 700, 400), (310, 900, 410)) == 910


def test_one_look_between_two_tensors_is_enough_for_a_long_time() -> None:
    """At each of the looks that follow, some tensor is half filled."""
    process = LimitedProcess(Path())
    process.tidy = True

    assert limit_of(process, (300, 310, 400), *[(300, 380, 400)] * 30) == 910


def test_what_was_given_back_is_room_at_once() -> None:
    """The process has raised its wall: what is untouched since then counts, not what was before."""
    process = LimitedProcess(Path())
    process.tidy = True
    limit_of(process, *[(300, 310, 400)] * 3)
    process.place(200 * MB, 310 * MB, 300 * MB, END, 1010 * MB)

    assert limit_of(process, *[(200, 310, 300)] * 5) == 1010


def test_a_process_that_has_raised_its_wall_keeps_it_until_the_readings_agree() -> None:
    """It has given memory back a moment ago."""
    process = LimitedProcess(Path())
    process.tidy = True
    limit_of(process, (300, 300, 400), (300, 300, 400))
    raised = process.place(200 * MB, 300 * MB, 300 * MB, END, 1000 * MB)

    assert raised == 1000 * MB
