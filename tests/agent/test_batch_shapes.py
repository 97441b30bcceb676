"""Batches are reported when they are shaped like none of the last ones, a few of them, and far larger ones always."""

from __future__ import annotations

from typing import Any

from holter.agent.observe.batch_shapes import BatchShapes


class Agent:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        assert kind == "batch"
        self.events.append(fields)


def seen(*lengths: int) -> list[dict[str, Any]]:
    """What is reported of batches of 16 rows with these lengths, in this order."""
    agent = Agent()
    batches = BatchShapes(agent)
    for step, length in enumerate(lengths, 1):
        batches.saw(step, [[[16, length], "int64"]], lambda: [7])
    return agent.events


def test_two_shapes_that_take_turns_are_reported_once_each() -> None:
    """The second time nothing is new."""
    assert [one["step"] for one in seen(8, 9, 8, 9, 8)] == [1, 2]


def test_a_batch_twice_as_large_as_all_before_it_is_reported_however_many_went_by() -> None:
    """With its samples, the long one of which made it so; fifty others are enough to know the rest by."""
    events = seen(*[100 + n % 60 for n in range(99)], 400)

    assert len(events) == 51
    assert events[-1] == {"step": 100, "shapes": [[[16, 400], "int64"]], "samples": [7]}
    assert all("samples" not in one for one in events[:-1])


def test_batches_that_grow_are_known_to_by_a_report_for_each_tenth_more() -> None:
    """After the first fifty shapes: 149, then 164 and 181; what is smaller or hardly larger goes by."""
    lengths = [one["shapes"][0][0][1] for one in seen(*range(100, 199), 120, 190)]

    assert lengths == [*range(100, 150), 164, 181]
