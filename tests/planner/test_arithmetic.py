"""The arithmetic of a plan: timelines, the GPU's allocator, the fit, the search, the table. No framework is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holter.planner.amounts import bytes_of
from holter.planner.fit import CPU, CUDA, corrected
from holter.planner.largest import largest
from holter.planner.memory_budget import memory_budget_for
from holter.planner.settings import buys_most, rank, settings_for
from holter.planner.timeline import ALLOCATE, MARK, MOMENT, RELEASE, Timeline, between, settle, summit
from holter.planner.torch.allocator_cuda import Allocator, reserved
from holter.planner.torch.drawing import Drawing

MB = 1 << 20


def step(rows: int) -> Timeline:
    """Weights of 10, one activation per row, a gradient of 10 that replaces it, and a kernel's own 3."""
    timeline = Timeline([(ALLOCATE, 1, 10)], {1: "parameters", 4: "gradients"}, ["forward", "backward"])
    timeline.events += [(MARK, 0, 0), (ALLOCATE, 2, 5), (ALLOCATE, 3, rows), (RELEASE, 2, 0)]
    timeline.events += [(MARK, 1, 0), (ALLOCATE, 4, 10), (MOMENT, 0, 3), (RELEASE, 3, 0)]
    settle(timeline)
    return timeline


def test_the_summit_is_where_most_is_held_at_once() -> None:
    """A kernel's own memory counts while it runs, and what was freed before does not."""
    found = summit(step(100))

    assert (found.total, found.phase) == (123, "backward")
    assert found.parts == {"parameters": 10, "gradients": 10, "optimizer": 0, "activations": 100, "temporary": 3}


def test_blocks_are_rounded_up_by_the_allocator() -> None:
    """Ten bytes are 512 on a GPU."""
    assert summit(step(100), 512).total == 3 * 512 + 3


def test_a_step_is_drawn_at_any_size_from_two() -> None:
    """Every block is a line in the batch size."""
    drawn = between(step(4), step(7), 4, 7, 1000)

    assert drawn is not None
    assert drawn.events == step(1000).events


def test_two_steps_that_differ_are_not_drawn() -> None:
    """A step that does other things at another size is traced at every size instead."""
    other = step(7)
    other.events.append((ALLOCATE, 9, 1))

    assert between(step(4), other, 4, 7, 10) is None


def test_the_allocator_keeps_what_it_took_and_gives_it_again() -> None:
    """A block of 30 MB that was freed serves the next of its size, and the driver is not asked again."""
    allocator = Allocator()
    first = allocator.take(30 * MB)
    assert first is not None
    allocator.give(first)
    allocator.take(30 * MB)

    assert allocator.reserved == 30 * MB


def test_small_blocks_share_segments_and_join_when_freed() -> None:
    """2 MB for what is at most 1 MB, 20 MB for what is below 10 MB."""
    allocator = Allocator()
    small = [allocator.take(512) for _ in range(100)]
    allocator.take(3 * MB)

    assert allocator.reserved == 22 * MB
    for number in small:
        assert number is not None
        allocator.give(number)
    assert allocator.take(MB) is not None
    assert allocator.reserved == 22 * MB


def test_at_the_limit_unused_segments_go_back_before_it_fails() -> None:
    """What is free but of another size is given up first; then there is none."""
    allocator = Allocator(limit=100 * MB)
    first = allocator.take(60 * MB)
    assert first is not None
    allocator.give(first)

    assert allocator.take(80 * MB) is not None
    assert allocator.take(60 * MB) is None


def test_a_step_fails_in_pieces_although_its_tensors_would_fit() -> None:
    """The limit is held against segments, not against tensors."""
    timeline = Timeline([(MARK, 0, 0)] + [(ALLOCATE, n, 11 * MB + 1) for n in range(4)], {}, ["forward"])
    settle(timeline)

    assert reserved(timeline) == 4 * 12 * MB
    assert reserved(timeline, limit=46 * MB) is None


def test_the_optimizers_state_is_made_after_the_first_step_and_stays_in_its_holes() -> None:
    """30 MB are free when the state is made; it takes 11 of them, so the next step needs a segment of its own."""
    step = [(MARK, 0, 0), (ALLOCATE, 2, 30 * MB), (RELEASE, 2, 0), (MARK, 1, 0)]
    timeline = Timeline([(ALLOCATE, 1, 11 * MB), *step], {1: "optimizer"}, ["forward", "optimizer"])
    settle(timeline)

    assert reserved(timeline, steps=1) == 30 * MB
    assert reserved(timeline) == 60 * MB
    assert reserved(timeline, limit=50 * MB) is None


def test_measurements_correct_what_was_drawn() -> None:
    """A constant of 50 MB and one more MB per row, which no drawing sees."""
    fit = corrected([(n, n * 10 * MB, n * 11 * MB + 50 * MB) for n in (4, 8, 16)], CUDA)
    found = fit.at(100, 1000 * MB)

    assert found.likely == pytest.approx(1150 * MB, rel=1e-6)
    assert found.low < found.likely < found.high < 1.03 * found.likely


def test_chance_is_not_drawn_on() -> None:
    """Measurements that differ by less than they scatter give no slope."""
    fit = corrected([(10, 0, 100_000_000), (20, 0, 103_000_000), (40, 0, 101_000_000)], CPU)

    assert fit.slope == 0.0


def test_without_measurements_the_interval_is_wide() -> None:
    """It says how little it knows."""
    blind, seen = corrected([], CUDA, 0), corrected([(1, 0, 0)], CUDA)

    assert blind.at(10, 1000).high - blind.at(10, 1000).low > 4 * (seen.at(10, 1000).high - seen.at(10, 1000).low)


@pytest.mark.parametrize("true", [0, 1, 2, 3, 37, 1000, 123_456])
def test_the_largest_size_is_found_by_halving(true: int) -> None:
    """Within a quarter of a per cent, never above, in few questions."""
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= true

    found = largest(fits, near=50)

    assert true - true // 400 <= found <= true
    assert len(asked) < 40


@pytest.mark.parametrize(
    ("text", "amount"), [("24GB", 24 * 10**9), ("1.5 GiB", 3 << 29), ("512m", 512 * 10**6), ("7", 7), (9, 9)]
)
def test_amounts_are_read_as_people_write_them(text: Any, amount: int) -> None:
    """Decimal units, and binary ones where they are said."""
    assert bytes_of(text) == amount


@pytest.mark.parametrize("text", ["", "GB", "1.2.3GB", "all", "-1GB", "1XB"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    """With what to say instead."""
    with pytest.raises(ValueError, match="24GB"):
        bytes_of(text)


def row(name: str, high: int, keeps: str, fits: bool, speed: float | None = None) -> dict[str, Any]:
    peak = {"low": 0, "likely": high, "high": high}
    return {"name": name, "peak": peak, "keeps": keeps, "fits": fits, "speed": speed, "single": True}


def test_what_fits_and_keeps_the_result_comes_first() -> None:
    """Then the faster; what does not fit is last, however small its change."""
    rows = [
        row("as it is", 9, "exact", False, 1.0),
        row("bf16", 3, "changed", True, 2.0),
        row("slow", 4, "exact", True, 0.5),
        row("quick", 5, "exact", True, 0.8),
    ]

    assert [one["name"] for one in rank(rows)] == ["quick", "slow", "bf16", "as it is"]
    assert buys_most(rows) == {"name": "bf16", "saves": 6, "keeps": "changed"}


def test_micro_batches_keep_the_result_unless_samples_meet() -> None:
    """Exact but for the order of sums; equivalent where BatchNorm sees parts, or dropout draws by parts."""
    keeps = [
        {s.name: s.keeps for s in settings_for("cuda", 8, facts)}["micro-batch 4 × 2"]
        for facts in ({}, {"batch_norm": True}, {"dropout": True})
    ]

    assert keeps == ["exact", "equivalent", "equivalent"]


def test_optimizers_that_are_not_installed_are_not_offered() -> None:
    """8-bit AdamW is in the table only where its library is."""
    facts = {"optimizer": "adamw", "optimizers": ["sgd"]}

    assert "8-bit AdamW" not in [s.name for s in settings_for("cuda", 8, facts)]
    assert "SGD" in [s.name for s in settings_for("cuda", 8, facts)]


def test_a_step_that_held_less_than_was_drawn_has_fewer_holes_at_every_size() -> None:
    """Less by a constant would leave small sizes with less than their tensors."""
    drawing: Any = SimpleNamespace(has_holes=True, holes=1.0, heights={100: 300, 10: 30})
    drawing.summit = lambda rows: SimpleNamespace(total=2 * rows)
    drawing.height = lambda rows: Drawing.height(drawing, rows)
    Drawing.learn_holes(drawing, 100, -50)
    assert (drawing.height(100), drawing.height(10)) == (250, 25)

    Drawing.learn_holes(drawing, 100, -1000)
    assert (drawing.height(100), drawing.height(10)) == (200, 20)


def test_the_memory_of_this_machine_is_known_without_being_told() -> None:
    """What `holter plan` takes where no --memory is given: bytes, and what sets them."""
    found, words = memory_budget_for(None, "cpu")

    assert found > 100_000_000
    assert words
