"""The agents' folder: brought home when nobody is left, untouched while anybody is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holter.record import place
from holter.record.gather import gather
from holter.recorder.launch import run_dir, state_dir


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A agents' folder where `clear_abandoned` looks for them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Path(tempfile.mkdtemp(prefix=f"holter-{os.getuid()}-", dir=tmp_path))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return place.new_run(tmp_path / "home")


def ended() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_dead_keepers_folder_is_brought_home(room: Path, record: Path) -> None:
    """What the agents wrote lies in the record, private, and the folder is gone; empty files are dropped."""
    pid = ended()
    run_dir.note_owner(room, pid, record)
    (room / f"{pid}.jsonl").write_text("a line\n")
    (room / f"{pid}.stacks").write_text("stacks")
    (room / f"{pid}.ring").write_bytes(b"")
    before = os.umask(0)
    try:
        run_dir.clear_abandoned()
    finally:
        os.umask(before)

    assert not room.exists()
    assert (record / "guests" / f"{pid}.jsonl").read_text() == "a line\n"
    assert (record / "stacks" / f"{pid}.txt").read_text() == "stacks"
    assert not (record / "guests" / f"{pid}.ring").exists()
    assert {path.stat().st_mode & 0o777 for path in record.rglob("*.*") if path.is_file()} == {0o600}


def test_a_living_keepers_folder_is_untouched(room: Path, record: Path) -> None:
    """Also where start times can't be known, as on a Mac."""
    (room / "1.jsonl").write_text("a line\n")
    run_dir.note_owner(room, os.getpid(), record)
    before = sorted(path.name for path in room.iterdir())
    run_dir.clear_abandoned()

    assert sorted(path.name for path in room.iterdir()) == before


def test_where_start_times_are_not_known_a_living_number_is_a_living_keeper(
    room: Path, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no /proc on a Mac: the folder of a run that is on must not be cleared away."""
    monkeypatch.setattr(run_dir, "start_time", lambda _pid: None)
    run_dir.note_owner(room, os.getpid(), record)
    run_dir.clear_abandoned()

    assert room.exists()


def test_a_later_process_with_the_keepers_number_is_not_the_keeper(room: Path, record: Path) -> None:
    """Its start time tells."""
    owner = {"keeper": os.getpid(), "start": 1, "record": str(record)}
    (room / run_dir.OWNER).write_text(json.dumps(owner))
    run_dir.clear_abandoned()

    assert room.exists() is not Path("/proc").exists()


def test_an_agent_that_outlived_the_keeper_keeps_its_folder(room: Path, record: Path) -> None:
    """Recorder and keeper were killed, but the training goes on and writes."""
    run_dir.note_owner(room, ended(), record)
    (room / f"{os.getpid()}.ring").write_bytes(b"x")
    run_dir.clear_abandoned()

    assert (room / f"{os.getpid()}.ring").exists()


@pytest.mark.parametrize("owner", ["", "[]", "7", '{"keeper": "x"}', '{"keeper": 1e99, "start": 1}', "{" * 9000])
def test_a_folder_whose_owner_is_not_known_is_left_alone(room: Path, owner: str) -> None:
    """It may be one that is being made right now."""
    (room / run_dir.OWNER).write_text(owner)
    run_dir.clear_abandoned()

    assert room.exists()


def test_a_folder_that_never_had_an_owner_is_cleared_after_a_day(room: Path) -> None:
    """Its run was killed while it began; one that is young may still be beginning."""
    run_dir.clear_abandoned()
    assert room.exists()
    old = time.time() - 2 * 86400
    os.utime(room, (old, old))
    run_dir.clear_abandoned()

    assert not room.exists()


def test_a_record_that_is_gone_takes_its_agents_along(room: Path, tmp_path: Path) -> None:
    """Nobody can read them any more."""
    run_dir.note_owner(room, ended(), tmp_path / "removed")
    run_dir.clear_abandoned()

    assert not room.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_another_users_folder_is_left_alone(room: Path, record: Path) -> None:
    """Anyone can make a folder of that name in a place that is open to all."""
    run_dir.note_owner(room, ended(), record)
    (room / "1.jsonl").write_text("not ours\n")
    os.chown(room, 65534, 65534)
    run_dir.clear_abandoned()

    assert room.exists()
    assert not list((record / "guests").iterdir())


def test_a_link_among_the_agents_files_is_not_followed(room: Path, record: Path, tmp_path: Path) -> None:
    """What it leads to stays where it is, and is not copied."""
    (tmp_path / "private").write_text("private")
    (room / "1.jsonl").symlink_to(tmp_path / "private")

    assert gather(room, record)
    assert not list((record / "guests").iterdir())
    assert (tmp_path / "private").read_text() == "private"


def test_what_does_not_fit_stays_where_it_is(room: Path, record: Path) -> None:
    """A record that can't take the files costs none of them: the next run tries again."""
    pid = ended()
    run_dir.note_owner(room, pid, record)
    (room / f"{pid}.jsonl").write_text("a line\n")
    shutil.rmtree(record / "guests")
    run_dir.clear_abandoned()
    assert (room / f"{pid}.jsonl").exists()
    (record / "guests").mkdir()
    run_dir.clear_abandoned()

    assert (record / "guests" / f"{pid}.jsonl").read_text() == "a line\n"
    assert not room.exists()


def test_the_commands_environment_is_the_users_own_with_us_in_front() -> None:
    """Nothing else is changed, and without a folder nothing at all."""
    base = {"A": "1", "PYTHONPATH": "/x"}

    found = run_dir.command_environ(Path("/agents"), "r-0001", base)

    assert found == {
        "A": "1",
        "PYTHONPATH": f"{run_dir.INJECT}{os.pathsep}/x",
        "HOLTER_AGENT_DIR": "/agents",
        "HOLTER_RUN": "r-0001",
        "TORCH_FR_BUFFER_SIZE": "256",
    }
    assert run_dir.command_environ(None, "r-0001", base) == base


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_a_flight_recorder_of_the_users_own_size_keeps_it(name: str) -> None:
    """Under either name, and even switched off."""
    found = run_dir.command_environ(Path("/agents"), "r-0001", {name: "0"})

    assert {key: value for key, value in found.items() if key.startswith("TORCH")} == {name: "0"}


def test_the_state_between_two_attempts_is_not_taken_for_abandoned(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run begins while this one's first keeper is gone and its second is not there yet."""
    monkeypatch.setattr(run_dir, "bases", lambda: [str(room.parent)])
    made = state_dir.make()
    assert made.fast is not None
    (made.fast / "state").write_text("of the first attempt")
    words = "import sys; from holter.recorder.launch import run_dir as g; g.bases = lambda: sys.argv[1:]"
    words += "; g.clear_abandoned()"
    subprocess.run([sys.executable, "-c", words, str(room.parent)], check=True)

    assert (made.fast / "state").exists()
    assert json.loads((made.fast / run_dir.OWNER).read_text())["keeper"] == os.getpid()  # and not one attempt's
    made.clear()
