"""Runs are kept like files: listed by what became of them, and deleted when they are old, large or not wanted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holter.record import place
from holter.record.kept import keep_the_disk_free, kept_runs
from tests.conftest import Holter

DAY = 86400.0


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs 1 to 3: an old one that failed, an old one that ended well, and one of now."""
    folder = tmp_path_factory.mktemp("three")
    recorded = Holter(folder / "home", folder)
    recorded("run", "--name", "sweep-a", "--", sys.executable, "-c", "raise ValueError('no such shape')")
    recorded("run", "--name", "sweep-b", "--", "true")
    recorded("run", "--name", "baseline", "--", "true")
    for number, days in ((1, 40), (2, 35)):
        aged(recorded.record(number), days)
    return folder / "home"


def aged(folder: Path, days: float) -> None:
    """The record as it would lie there if the run had been so long ago."""
    meta = json.loads((folder / "record.json").read_text())
    meta["started"] -= days * DAY
    (folder / "record.json").write_text(json.dumps(meta))
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - days * DAY,) * 2)


@pytest.fixture
def kept(three_runs: Path, tmp_path: Path) -> Holter:
    """Three runs of one's own to list and delete."""
    shutil.copytree(three_runs, tmp_path / "home", ignore=shutil.ignore_patterns(".size-checked"))
    (tmp_path / "work").mkdir()
    return Holter(tmp_path / "home", tmp_path / "work")


def a_day_later(kept: Holter) -> None:
    os.utime(kept.home / ".size-checked", (time.time() - 2 * DAY,) * 2)


def ids(kept: Holter) -> list[str]:
    return place.run_ids(kept.home)


def listed(kept: Holter, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept("ls", "--json", *options).stdout.splitlines()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["r-0003", "r-0002", "r-0001"]),
        (["--failed"], ["r-0001"]),
        (["--since", "1d"], ["r-0003"]),
        (["--since", "37d"], ["r-0003", "r-0002"]),
        (["--since", "2000-01-31", "--name", "sweep"], ["r-0002", "r-0001"]),
        (["--name", "no such"], []),
    ],
    ids=lambda value: " ".join(value) or "all",
)
def test_runs_are_found_by_their_ending_time_and_name(kept: Holter, options: list[str], expected: list[str]) -> None:
    """A line of JSON for each, the newest first."""
    assert [row["id"] for row in listed(kept, *options)] == expected


def test_a_line_of_json_says_what_the_table_says_and_the_cause(kept: Holter) -> None:
    """What scripts ask for: the ending, the cause, whether it is well, and the command."""
    failed = listed(kept, "--failed")[0]

    assert (failed["name"], failed["ending"], failed["cause"], failed["healthy"]) == (
        "sweep-a", "exception", "user-error", False,
    )  # fmt: skip
    assert failed["command"][1:] == ["-c", "raise ValueError('no such shape')"]
    assert failed["lasted"] > 0


def test_where_no_run_is_like_that_one_line_says_so(kept: Holter) -> None:
    """It is not the line for somebody who has no runs at all."""
    assert kept("ls", "--name", "no such").stdout == b"no run is like that: holter ls shows the last ones\n"


def test_rm_deletes_what_is_named_and_nothing_else(kept: Holter) -> None:
    """By id and by name; the third stays."""
    done = kept("rm", "r-0001", "baseline")

    assert done.returncode == 0, done.stderr
    assert ids(kept) == ["r-0002"]
    assert not list(place.runs_folder(kept.home).glob(".deleted-*"))


def test_rm_deletes_none_where_one_is_unknown_or_lies_elsewhere(kept: Holter, tmp_path: Path) -> None:
    """A record's folder that was copied from elsewhere is the user's to delete."""
    shutil.copytree(kept.record(1), tmp_path / "copied")

    assert kept("rm", "r-0001", "r-0042").returncode == 3
    assert kept("rm", "r-0001", str(tmp_path / "copied")).returncode == 3
    assert ids(kept) == ["r-0001", "r-0002", "r-0003"]
    assert (tmp_path / "copied" / "record.json").exists()


def test_a_run_that_is_still_recorded_is_not_deleted(kept: Holter, wait_for: Any) -> None:
    """Neither by rm nor by prune, whatever they are asked."""
    running = kept.start("run", "--", sys.executable, "-c", "print('on', flush=True); input()", stdin=subprocess.PIPE)
    wait_for(lambda: (kept.record(4) / "record.json").exists(), "the record of the fourth run")
    removed, pruned = kept("rm", "r-0004"), kept("prune", "--older-than", "0s", "--max-size", "0MB")
    left = ids(kept)
    running.communicate(b"\n", timeout=60)

    assert (removed.returncode, removed.stdout) == (1, b"")
    assert b"still being recorded" in removed.stderr
    assert pruned.returncode == 0
    assert left == ["r-0004"]
    assert running.returncode == 0
    assert kept("rm", "r-0004").returncode == 0


def test_a_run_whose_recorder_was_killed_can_be_deleted_later(kept: Holter, wait_for: Any) -> None:
    """Its end will never be written. For ten minutes it looks like one that is recorded in another container."""
    running = kept.start("run", "--", sys.executable, "-c", "print('on', flush=True); input()", stdin=subprocess.PIPE)
    wait_for(lambda: (kept.record(4) / "record.json").exists(), "the record of the fourth run")
    recorder = json.loads((kept.record(4) / "record.json").read_text())["recorder_pid"]
    os.kill(recorder, signal.SIGKILL)
    running.communicate(b"\n", timeout=60)
    soon = kept("rm", "r-0004")
    aged(kept.record(4), 0.01)
    later = kept("rm", "r-0004")

    assert (soon.returncode, later.returncode) == (1, 0), later.stderr
    assert b"ten minutes" in soon.stderr
    assert ids(kept) == ["r-0001", "r-0002", "r-0003"]


def test_a_run_that_has_written_nothing_yet_is_not_deleted(kept: Holter) -> None:
    """Between its folder and its first line a run can't be told from a damaged record: it has ten minutes."""
    starting = place.new_run(kept.home)

    assert kept("rm", starting.name).returncode == 1
    assert kept("prune", "--max-size", "0MB").returncode == 0
    assert ids(kept) == [starting.name]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--older-than", "30d"], ["r-0003"]),
        (["--older-than", "37d"], ["r-0002", "r-0003"]),
        (["--older-than", "30d", "--keep-failed"], ["r-0001", "r-0003"]),
        (["--max-size", "0MB"], []),
        (["--max-size", "0MB", "--keep-failed"], ["r-0001"]),
        (["--max-size", "1GB"], ["r-0001", "r-0002", "r-0003"]),
        (["--older-than", "30d", "--dry-run"], ["r-0001", "r-0002", "r-0003"]),
    ],
    ids=" ".join,
)
def test_prune_deletes_by_age_and_size(kept: Holter, options: list[str], left: list[str]) -> None:
    """What goes is named, with what the rest takes."""
    done = kept("prune", *options)

    assert done.returncode == 0, done.stderr
    assert ids(kept) == left
    gone = 2 if "--dry-run" in options else 3 - len(left)
    assert f"{gone} of 3 runs" in done.stdout.decode()


def test_a_deletion_that_was_cut_off_is_taken_up_again(kept: Holter) -> None:
    """What is half deleted is no run, and the next prune takes the rest of it."""
    runs = place.runs_folder(kept.home)
    (runs / "r-0002").rename(runs / ".deleted-r-0002-77")

    assert [row["id"] for row in listed(kept)] == ["r-0003", "r-0001"]
    assert kept("prune", "--max-size", "1GB").returncode == 0
    assert not list(runs.glob(".deleted-*"))
    assert ids(kept) == ["r-0001", "r-0003"]


def test_a_number_is_given_once(kept: Holter) -> None:
    """A view that still shows a deleted run never shows another one under its number."""
    assert kept("rm", "r-0003").returncode == 0
    assert kept("rm", "r-0002").returncode == 0

    assert place.new_run(kept.home).name == "r-0004"
    assert len(list(place.runs_folder(kept.home).glob(".last-deleted-*"))) == 1


def test_a_name_of_several_runs_deletes_none(kept: Holter) -> None:
    """Which one is meant can't be told: their ids are."""
    kept("run", "--name", "baseline", "--", "true")

    done = kept("rm", "baseline")

    assert (done.returncode, ids(kept)) == (1, ["r-0001", "r-0002", "r-0003", "r-0004"])
    assert b"r-0004, r-0003" in done.stderr


def test_what_is_no_record_stops_no_deletion(kept: Holter) -> None:
    """A file with a run's name is none, and stays."""
    (place.runs_folder(kept.home) / "r-0000").write_text("a note")

    assert kept("prune", "--max-size", "0MB").returncode == 0
    assert ids(kept) == []
    assert (place.runs_folder(kept.home) / "r-0000").read_text() == "a note"


@pytest.mark.root
def test_records_of_another_user_in_a_shared_folder_stay(kept: Holter) -> None:
    """They are theirs to delete: by rm and prune, and by what Holter deletes by itself."""
    if os.geteuid() != 0:
        pytest.skip("making a file another user's needs root")
    os.chown(kept.record(1), 12345, 12345)
    removed, pruned = kept("rm", "r-0001"), kept("prune", "--max-size", "0MB")

    assert (removed.returncode, pruned.returncode) == (1, 0)
    assert b"another user's" in removed.stderr
    assert ids(kept) == ["r-0001"]
    assert keep_the_disk_free(kept.home, limit=0) == []


def test_a_file_system_that_does_not_tell_its_size_is_no_small_one(
    kept: Holter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them say that they have no blocks at all: then 5 GB is the limit."""
    silent = os.statvfs_result([4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255])
    monkeypatch.setattr(os, "statvfs", lambda _path: silent)

    assert keep_the_disk_free(kept.home) == []
    assert len(ids(kept)) == 3


@pytest.mark.parametrize("amount", ["20", "9" * 400 + "T", "-1GB", "none"])
def test_an_amount_that_may_be_meant_otherwise_deletes_nothing(kept: Holter, amount: str) -> None:
    """Twenty bytes is what nobody means."""
    done = kept("prune", "--max-size", amount)

    assert (done.returncode, len(ids(kept))) == (2, 3)
    assert b"2GB or 500MB" in done.stderr


def test_a_month_is_no_minute(kept: Holter) -> None:
    """`1m` is read as either, so it is taken as none."""
    assert kept("prune", "--older-than", "1m").returncode == 2
    assert len(ids(kept)) == 3


def test_a_renamed_record_is_listed_by_the_name_it_is_found_by(kept: Holter) -> None:
    """The id inside may be another run's, which `holter rm` would then delete."""
    shutil.copytree(kept.record(1), kept.record(7))

    assert [row["id"] for row in listed(kept)] == ["r-0007", "r-0003", "r-0002", "r-0001"]


def test_what_is_left_out_of_the_list_is_counted(kept: Holter) -> None:
    """Twenty are shown; with a filter those that were not looked at are counted, none where all were."""
    for number in range(4, 25):
        shutil.copytree(kept.record(2), kept.record(number))

    assert kept("ls").stdout.splitlines()[-1] == b"and 4 older: the same with --all"
    assert b"older:" not in kept("ls", "--failed").stdout


def test_a_linked_record_loses_the_link_alone(kept: Holter, tmp_path: Path) -> None:
    """The record that it leads to lies elsewhere, and stays."""
    kept.record(1).rename(tmp_path / "elsewhere")
    kept.record(1).symlink_to(tmp_path / "elsewhere")

    done = kept("rm", "r-0001")

    assert (done.returncode, done.stdout) == (0, b"r-0001 deleted (0 bytes)\n")
    assert (tmp_path / "elsewhere" / "record.json").exists()


def test_records_never_fill_the_disk_by_themselves(kept: Holter) -> None:
    """The oldest go as far as all take too much; none of the last day goes, and the look is taken once a day."""
    sizes = [run.taken for run in kept_runs(kept.home)]

    assert keep_the_disk_free(kept.home, limit=sum(sizes)) == []
    assert keep_the_disk_free(kept.home, limit=0) == []  # on the same day
    a_day_later(kept)
    gone = keep_the_disk_free(kept.home, limit=sum(sizes) - 1)

    assert [run.id for run in gone] == ["r-0001"]
    a_day_later(kept)
    assert [run.id for run in keep_the_disk_free(kept.home, limit=0)] == ["r-0002"]
    assert ids(kept) == ["r-0003"]


@pytest.mark.root
def test_what_the_next_run_deletes_it_says(kept: Holter, tmp_path: Path) -> None:
    """More than a tenth of a small disk is taken: one line on stderr, and the exit code stays the command's own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(small)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.decode().strip()}")
    try:
        (kept.record(1) / "filler").write_bytes(b"x" * 4_000_000)
        aged(kept.record(1), 1)
        shutil.copytree(kept.home, small / "home")
        environ = {"HOLTER_HOME": str(small / "home")}
        trained = kept("run", "--", sys.executable, "-c", "raise SystemExit(7)", env=environ)
        left = place.run_ids(small / "home")
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)

    assert trained.returncode == 7
    assert b"holter: the oldest records were deleted to keep the disk free (1, " in trained.stderr
    assert left == ["r-0002", "r-0003", "r-0004"]
