"""A ring is read while it is written, after its writer was killed, and when it is none."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holter.agent.core.heartbeat import Ring
from holter.record import ring_format as f
from holter.record.ring_reader import NotARing, RingView
from tests.record.rings import ring, set_word, step_slot


@given(st.binary(max_size=400))
def test_random_bytes_are_no_ring(noise: bytes) -> None:
    """Whatever they are, short or as long as a ring."""
    for raw in (noise, noise.ljust(f.SIZE, b"\0"), f.MAGIC + noise.ljust(f.SIZE, b"\xff")):
        with pytest.raises(NotARing):
            RingView(raw)


@given(st.integers(0, 40), st.integers(0, f.BODY.size + 3), st.integers(1, 255))
def test_a_damaged_slot_is_left_out_and_no_other(number: int, at: int, flip: int) -> None:
    """Any byte of any slot: its checksum tells."""
    raw = ring([step_slot(n, n + 1) for n in range(41)])
    raw[f.HEADER + number * f.SLOT + at] ^= flip

    assert [slot.seq for slot in RingView(raw).slots()] == [n for n in range(41) if n != number]


@given(st.integers(0, f.BODY.size + 4))
def test_a_slot_that_was_being_written_is_left_out(written: int) -> None:
    """A kill after any number of bytes: the slot is there only when it is whole, also before it was counted."""
    bodies = [step_slot(n, n + 1) for n in range(6)]
    whole = ring(bodies, head=5)
    raw = ring(bodies[:5])
    at = f.HEADER + 5 * f.SLOT
    raw[at : at + written] = whole[at : at + written]

    found = [slot.seq for slot in RingView(raw).slots()]

    assert found == ([0, 1, 2, 3, 4, 5] if written == f.BODY.size + 4 else [0, 1, 2, 3, 4])


@given(st.lists(st.integers(0, 2**64 - 1), min_size=f.WORDS, max_size=f.WORDS))
def test_any_header_words_are_survived(words: list[int]) -> None:
    """A header full of nonsense gives a state in known words, and at most what the slots hold."""
    raw = ring([step_slot(n, n + 1) for n in range(3)])
    struct.pack_into(f"<{f.WORDS}Q", raw, f.WORDS_AT, *words)
    view = RingView(raw)

    assert view.state()["phase"] in f.PHASES
    assert len(list(view.slots())) <= 3


def test_overwritten_slots_are_told_by_their_absence() -> None:
    """After more slots than the ring holds the oldest are gone, and the others come in order."""
    count = f.CAPACITY + 100
    view = RingView(ring([step_slot(n, n + 1) for n in range(count)]))

    assert [slot.seq for slot in view.slots()] == list(range(100, count))
    assert [slot.seq for slot in view.slots(count - 3)] == [count - 2, count - 1]


def test_a_count_that_ran_ahead_finds_nothing_false() -> None:
    """Slots of an earlier round are not taken for those of this one."""
    raw = ring([step_slot(n, n + 1) for n in range(10)])
    set_word(raw, f.W_HEAD, f.CAPACITY + 5)

    assert [slot.seq for slot in RingView(raw).slots()] == [5, 6, 7, 8, 9]


def test_what_an_agent_writes_is_what_is_read(tmp_path: Path) -> None:
    """The writing side and the reading side agree on every byte."""
    written = Ring(str(tmp_path))
    for n in range(5):
        written.put(step_slot(n, n + 1, loss=float(n)))
    written.words[f.W_STEP] = 5

    (path,) = tmp_path.iterdir()
    view = RingView(path.read_bytes())

    assert [(slot.step, slot.loss) for slot in view.slots()] == [(n + 1, float(n)) for n in range(5)]
    assert (view.pid, view.state()["step"]) == (os.getpid(), 5)
    assert path.stat().st_blocks * 512 >= f.SIZE or sys.platform == "darwin"
