"""What agents write is drained once, whole, however it comes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holter.agent.core.heartbeat import Ring
from holter.record import lines
from holter.record import ring_format as f
from holter.recorder.loop.agents import Agents
from tests.conftest import Holter
from tests.record.conftest import small_disk  # noqa: F401 - a fixture
from tests.record.rings import ring, step_slot


def line(number: int) -> bytes:
    return lines.dump({"k": "said", "t": 1.0, "m": float(number), "pid": 7})


def test_lines_that_come_in_pieces_are_read_once_and_whole(tmp_path: Path) -> None:
    """A line is taken when its end is there."""
    agents = Agents(tmp_path, 0.0)
    raw = b"".join(line(n) for n in range(20))
    found = []
    for at in range(0, len(raw), 17):
        with open(tmp_path / "7.jsonl", "ab") as file:
            file.write(raw[at : at + 17])
        found += agents.drain()[0]

    assert [event["m"] for event in found] == [float(n) for n in range(20)]


def test_a_file_without_line_ends_does_not_stop_the_others(tmp_path: Path) -> None:
    """A megabyte of noise is passed over, and the line after it is read."""
    agents = Agents(tmp_path, 0.0)
    (tmp_path / "7.jsonl").write_bytes(b"x" * (1 << 20) + b"\n" + line(1))
    found = [*agents.drain()[0], *agents.drain()[0]]

    assert [event["m"] for event in found] == [1.0]


def test_a_ring_that_is_just_being_made_is_opened_when_it_is_whole(tmp_path: Path) -> None:
    """Empty, half long and without a head: looked at again each time."""
    agents = Agents(tmp_path, 0.0)
    path = tmp_path / "7.ring"
    whole = bytes(ring([step_slot(0, 1)]))
    for raw in (b"", bytes(5000), bytes(f.SIZE)):
        path.write_bytes(raw)
        assert agents.drain() == ([], [])
    path.write_bytes(whole)

    assert [steps["n"] for steps in agents.drain()[1]] == [1]
    assert agents.drain() == ([], [])


def test_steps_that_were_overwritten_are_counted_as_steps(tmp_path: Path) -> None:
    """The ring went round while nobody looked: what is missing is told in steps, not in slots."""
    agents = Agents(tmp_path, 0.0)
    path = tmp_path / "7.ring"
    path.write_bytes(ring([step_slot(0, 10, count=10)]))
    (first,) = agents.drain()[1]
    total = f.CAPACITY + 50
    with open(path, "r+b") as file:
        file.write(ring([step_slot(n, 10 * (n + 1), count=10) for n in range(total)]))
    (second,) = agents.drain()[1]

    assert "lost" not in first
    assert (second["lost"], second["n"], second["last"]) == (490, f.CAPACITY * 10, total * 10)
    assert first["n"] + second["n"] + second["lost"] == second["last"]


def test_roles_states_and_stack_files_are_known(tmp_path: Path) -> None:
    """Who plays which part, who can be asked for stacks, and what the living do."""
    agents = Agents(tmp_path, 0.0)
    (tmp_path / "7.ring").write_bytes(ring([]))
    (tmp_path / "9.stacks").write_bytes(b"")
    (tmp_path / "7.jsonl").write_bytes(lines.dump({"k": "guest", "t": 1, "m": 1, "pid": 7, "role": "trainer"}))
    agents.drain()

    assert (agents.role(7), agents.role(8)) == ("trainer", "other")
    assert agents.armed == {9}
    assert [state["pid"] for state in agents.states({7, 9})] == [7]
    assert agents.states({9}) == []


def test_a_folder_that_vanished_or_never_was_is_survived(tmp_path: Path) -> None:
    """There are just no agents."""
    assert Agents(tmp_path / "gone", 0.0).drain() == ([], [])
    assert Agents(None, 0.0).drain() == ([], [])


def test_a_ring_that_is_cut_off_is_left_alone(tmp_path: Path) -> None:
    """Nobody is killed by it, and the others are read on."""
    agents = Agents(tmp_path, 0.0)
    for pid in (7, 8):
        (tmp_path / f"{pid}.ring").write_bytes(ring([step_slot(0, 1)], pid=pid))
    assert len(agents.drain()[1]) == 2
    for pid in (7, 8):
        (tmp_path / f"{pid}.ring").write_bytes(b"" if pid == 7 else ring([step_slot(0, 1), step_slot(1, 2)], pid=pid))

    assert [line["pid"] for line in agents.drain()[1]] == [8]
    assert [state["pid"] for state in agents.states({7, 8})] == [8]


def ended() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_process_left_is_let_go_when_it_is_drained(tmp_path: Path) -> None:
    """The ring at once, with the last that was written; the rest a few seconds later, into the record."""
    gone, here = ended(), os.getpid()
    home = tmp_path / "record"
    for name in ("guests", "stacks"):
        (home / name).mkdir(parents=True)
    room = tmp_path / "room"
    room.mkdir()
    agents = Agents(room, 0.0, home)
    for pid in (gone, here):
        (room / f"{pid}.5.ring").write_bytes(ring([step_slot(0, 1)], pid=pid))
        (room / f"{pid}.jsonl").write_bytes(line(1))
        (room / f"{pid}.stacks").write_bytes(b"")
    agents.drain()
    (room / f"{gone}.5.ring").write_bytes(ring([step_slot(0, 1), step_slot(1, 2)], pid=gone))

    assert [steps["last"] for steps in agents.let_go({here}, 0.0)] == [2]
    assert sorted(path.name for path in room.glob("*.ring")) == [f"{here}.5.ring"]
    agents.drain()
    agents.let_go({here}, 100.0)
    assert {path.name.partition(".")[0] for path in room.iterdir()} == {str(here)}
    assert [path.name for path in (home / "guests").iterdir()] == [f"{gone}.jsonl"]
    assert {state["pid"] for state in agents.last_states()} == {gone, here}


def test_an_agent_that_listens_is_not_taken_for_one_that_has_ended(tmp_path: Path) -> None:
    """In another namespace its number is nobody's here."""
    pid = ended()
    agents = Agents(tmp_path, 0.0)
    (tmp_path / f"{pid}.5.ring").write_bytes(ring([step_slot(0, 1)], pid=pid))
    os.mkfifo(tmp_path / f"{pid}.ask")
    listening = os.open(tmp_path / f"{pid}.ask", os.O_RDWR)
    agents.drain()
    agents.let_go(set(), 0.0)
    assert (tmp_path / f"{pid}.5.ring").exists()
    os.close(listening)
    agents.let_go(set(), 1.0)

    assert not (tmp_path / f"{pid}.5.ring").exists()


def test_shared_memory_is_free_again_while_the_run_goes_on(holter: Holter) -> None:
    """Ten processes step and end, one after the other: none of their rings is left, and all their steps are known."""
    script = holter.script(
        """
        import glob, os, time, holter
        for _ in range(10):
            pid = os.fork()
            if not pid:
                holter.step(loss=1.0)
                raise SystemExit
            os.waitpid(pid, 0)
        deadline = time.monotonic() + 600
        while glob.glob(os.environ["HOLTER_AGENT_DIR"] + "/*.ring") and time.monotonic() < deadline:
            time.sleep(0.05)
        print(len(glob.glob(os.environ["HOLTER_AGENT_DIR"] + "/*.ring")))
        """
    )
    done = holter.run(sys.executable, script)

    assert done.stdout == b"0\n"
    assert len({steps["pid"] for steps in holter.timeline("steps")}) == 10


@pytest.mark.root
def test_a_process_with_the_number_of_an_earlier_one_is_recorded(holter: Holter) -> None:
    """Two processes of one number step before anybody looks: both are in the record."""
    script = holter.script(
        """
        import os, time, holter
        def child(n, last):
            if last:
                with open("/proc/sys/kernel/ns_last_pid", "w") as file:
                    file.write(str(last - 1))
            pid = os.fork()
            if not pid:
                for i in range(n):
                    holter.step(loss=float(n))
                    time.sleep(0.03)
                raise SystemExit
            os.waitpid(pid, 0)
            return pid
        first = child(3, 0)
        for _ in range(50):
            if child(5, first) == first:
                print("again", flush=True)
                break
        time.sleep(1.5)
        """
    )
    done = holter.run(sys.executable, script)
    if done.stdout != b"again\n":
        pytest.skip("a process's number can't be chosen here")
    found = holter.timeline("steps")

    assert any(steps.get("loss", {}).get("last") == 3.0 for steps in found)
    assert any(steps.get("loss", {}).get("last") == 5.0 and steps["last"] == 5 for steps in found)


@pytest.mark.root
def test_a_ring_takes_a_small_part_of_a_small_folder(small_disk: Path, tmp_path: Path) -> None:  # noqa: F811
    """What is there belongs to the user; a smaller ring goes round sooner, and is read like any other."""
    with pytest.raises(OSError, match="too little space"):
        Ring(str(small_disk))
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    small, usual = Ring(str(small_disk)), Ring(str(tmp_path))
    total = small.capacity + 5
    for n in range(total):
        small.put(step_slot(n, n + 1))
    (steps,) = Agents(small_disk, 0.0).drain()[1]
    (path,) = small_disk.iterdir()

    assert path.stat().st_size <= (8 << 20) / 200
    assert small.capacity < usual.capacity == f.CAPACITY
    assert (steps["n"], steps["last"]) == (small.capacity, total)
