"""What beacons write is drained once, whole, however it comes."""

from __future__ import annotations

from pathlib import Path

from holter.record import lines
from holter.record import ring_format as f
from holter.recorder.guests import Guests
from tests.record.rings import ring, step_slot


def line(number: int) -> bytes:
    return lines.dump({"k": "said", "t": 1.0, "m": float(number), "pid": 7})


def test_lines_that_come_in_pieces_are_read_once_and_whole(tmp_path: Path) -> None:
    """A line is taken when its end is there."""
    guests = Guests(tmp_path, 0.0)
    raw = b"".join(line(n) for n in range(20))
    found = []
    for at in range(0, len(raw), 17):
        with open(tmp_path / "7.jsonl", "ab") as file:
            file.write(raw[at : at + 17])
        found += guests.drain()[0]

    assert [event["m"] for event in found] == [float(n) for n in range(20)]


def test_a_file_without_line_ends_does_not_stop_the_others(tmp_path: Path) -> None:
    """A megabyte of noise is passed over, and the line after it is read."""
    guests = Guests(tmp_path, 0.0)
    (tmp_path / "7.jsonl").write_bytes(b"x" * (1 << 20) + b"\n" + line(1))
    found = [*guests.drain()[0], *guests.drain()[0]]

    assert [event["m"] for event in found] == [1.0]


def test_a_ring_that_is_just_being_made_is_opened_when_it_is_whole(tmp_path: Path) -> None:
    """Empty, half long and without a head: looked at again each time."""
    guests = Guests(tmp_path, 0.0)
    path = tmp_path / "7.ring"
    whole = bytes(ring([step_slot(0, 1)]))
    for raw in (b"", bytes(5000), bytes(f.SIZE)):
        path.write_bytes(raw)
        assert guests.drain() == ([], [])
    path.write_bytes(whole)

    assert [steps["n"] for steps in guests.drain()[1]] == [1]
    assert guests.drain() == ([], [])


def test_steps_that_were_overwritten_are_counted_as_steps(tmp_path: Path) -> None:
    """The ring went round while nobody looked: what is missing is told in steps, not in slots."""
    guests = Guests(tmp_path, 0.0)
    path = tmp_path / "7.ring"
    path.write_bytes(ring([step_slot(0, 10, count=10)]))
    (first,) = guests.drain()[1]
    total = f.CAPACITY + 50
    with open(path, "r+b") as file:
        file.write(ring([step_slot(n, 10 * (n + 1), count=10) for n in range(total)]))
    (second,) = guests.drain()[1]

    assert "lost" not in first
    assert (second["lost"], second["n"], second["last"]) == (490, f.CAPACITY * 10, total * 10)
    assert first["n"] + second["n"] + second["lost"] == second["last"]


def test_roles_states_and_stack_files_are_known(tmp_path: Path) -> None:
    """Who plays which part, who can be asked for stacks, and what the living do."""
    guests = Guests(tmp_path, 0.0)
    (tmp_path / "7.ring").write_bytes(ring([]))
    (tmp_path / "9.stacks").write_bytes(b"")
    (tmp_path / "7.jsonl").write_bytes(lines.dump({"k": "guest", "t": 1, "m": 1, "pid": 7, "role": "trainer"}))
    guests.drain()

    assert (guests.role(7), guests.role(8)) == ("trainer", "other")
    assert guests.armed == {9}
    assert [state["pid"] for state in guests.states({7, 9})] == [7]
    assert guests.states({9}) == []


def test_a_folder_that_vanished_or_never_was_is_survived(tmp_path: Path) -> None:
    """There are just no guests."""
    assert Guests(tmp_path / "gone", 0.0).drain() == ([], [])
    assert Guests(None, 0.0).drain() == ([], [])
