"""What kernels of a GPU take while they run: read from the allocator's history, and drawn at other sizes."""

from __future__ import annotations

from typing import Any

import pytest

from holter.planner.timeline import ALLOCATE, MARK, MOMENT, RELEASE, Timeline, summit, with_moments
from holter.planner.torch.allocator_cuda import reserved
from holter.planner.torch.kernels_cuda import Kernels, height_of, taken_by, temporary

MARKER = [("alloc", 1, 13), ("free_completed", 1, 13)]
MB = 1 << 20


def trace(*entries: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [{"action": action, "addr": address, "size": size} for action, address, size in entries]


def block(size: int) -> tuple[tuple[int, int], ...]:
    return ((0, size), (0, 0))


def test_only_what_is_taken_and_given_back_is_the_kernels_own() -> None:
    """A result stays; a workspace and a copy of the input do not."""
    found = temporary(
        trace(
            ("alloc", 10, 4), ("alloc", 20, 50), ("segment_alloc", 30, 2 * MB), ("alloc", 30, 7),
            ("free_completed", 30, 7), ("alloc", 30, 9), ("free_requested", 20, 50), ("free_completed", 20, 50),
            ("free_completed", 30, 9),
        )
    )  # fmt: skip

    assert [size for _, size in found if size] == [50, 7, 9]
    assert height_of(found) == 59


def test_markers_tell_whose_a_block_is() -> None:
    """Each operation has one before and one after it; what lies between two operations is nobody's."""
    steps = trace(
        *MARKER, ("alloc", 5, 100), ("free_completed", 5, 100), *MARKER,
        ("alloc", 6, 70), ("free_completed", 6, 70),
        *MARKER, *MARKER,
    )  # fmt: skip
    found = taken_by(["conv", "relu"], steps)

    assert {name: height_of(program) for name, program in found.items()} == {"conv": 100, "relu": 0}
    assert taken_by(["conv"], steps) == {}, "a history that does not fit the step says nothing"


@pytest.mark.parametrize(
    ("taken", "rows", "wanted"),
    [
        ((10, 20, 40), 80, 80),
        ((15, 25, 45), 80, 85),  # a part of it does not grow
        ((10, 40, 40), 80, 40),  # as much as it ever takes
        ((0, 0, 40), 80, 80),  # begun at the last size: no line at all
        ((10, 20, 40), 30, 30),
    ],
    ids=["grows", "with a constant", "saturated", "begun late", "between"],
)
def test_other_sizes_are_drawn_from_those_that_were_seen(taken: tuple[int, ...], rows: int, wanted: int) -> None:
    sizes = zip((10, 20, 40), taken, strict=True)
    seen = [(size, {"forward aten.x 1": block(n * MB) if n else ()}) for size, n in sizes]

    assert Kernels(seen).at("forward aten.x 1", rows) == wanted * MB
    assert Kernels(seen).at("forward aten.y 1", rows) is None


def test_an_answer_at_a_size_is_worth_more_than_a_line() -> None:
    """A library takes another kernel for large batches."""
    name = "forward aten.convolution.default 1"
    kernels = Kernels([(10, {name: block(10 * MB)}), (20, {name: block(20 * MB)})])
    assert kernels.takers() == [name]
    kernels.learn(1000, {name: ((0, 30 * MB), (1, 10 * MB), (1, 0), (0, 0))})

    assert kernels.at(name, 1000) == 40 * MB
    assert height_of(kernels.program(name, 900) or ()) == pytest.approx(kernels.at(name, 900), rel=1e-6)
    assert len(kernels.program(name, 900) or ()) == 4
    assert kernels.is_known(1001)
    assert not kernels.is_known(900)


def test_operations_that_need_right_values_are_not_asked() -> None:
    name = "backward aten._cudnn_rnn_backward.default 1"

    assert Kernels([(10, {name: block(100 * MB)})]).takers() == []


def step(call: str) -> Timeline:
    """A result, another with a hole left beside it, in which a kernel takes memory, and a last one."""
    events = [
        (MARK, 0, 0), (ALLOCATE, 1, 100 * MB), (ALLOCATE, 2, 40 * MB), (MOMENT, 0, 0), (RELEASE, 1, 0),
        (ALLOCATE, 3, 60 * MB), (RELEASE, 2, 0), (RELEASE, 3, 0),
    ]  # fmt: skip
    return Timeline(events, dict.fromkeys((1, 2, 3), "activations"), ["forward"], [call])


@pytest.mark.parametrize(
    ("call", "fits"), [("forward aten.convolution.default 1", True), ("forward aten.sort 1", False)]
)
def test_a_convolution_does_with_less_where_it_must(call: str, fits: bool) -> None:
    """cuDNN goes on to a kernel that needs no memory; a sort has no other way."""
    drawn = with_moments(step(call), lambda _call: 90 * MB, lambda _call: block(90 * MB))

    assert summit(drawn).total == 230 * MB
    assert reserved(drawn, 240 * MB) == 230 * MB
    assert (reserved(drawn, 200 * MB) is not None) is fits
    assert reserved(drawn, 200 * MB, roomy=True) is None


def test_a_kernels_blocks_are_placed_one_by_one() -> None:
    """Two blocks fit into a hole and a new segment in which one of their size would not."""
    events = [
        (MARK, 0, 0), (ALLOCATE, 1, 40 * MB), (ALLOCATE, 2, 100 * MB), (RELEASE, 1, 0), (MOMENT, 0, 80 * MB),
        (RELEASE, 2, 0),
    ]  # fmt: skip
    whole = Timeline(events, dict.fromkeys((1, 2), "activations"), ["forward"], ["forward aten.sort 1"])
    halves = with_moments(whole, lambda _call: None, lambda _call: ((0, 40 * MB), (1, 40 * MB), (0, 0), (1, 0)))

    assert reserved(whole, steps=1) == 220 * MB
    assert reserved(halves, steps=1) == 180 * MB
