"""Tags, notes and names: what people write on a run, and where they see it again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Holter


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run 1, `small`, failed; run 2, `large`, took longer and more memory."""
    folder = tmp_path_factory.mktemp("two")
    recorded = Holter(folder / "home", folder)
    recorded(
        "run", "--name", "small", "--", sys.executable, "-c", "import time; time.sleep(1.2); raise ValueError('odd')"
    )
    recorded("run", "--name", "large", "--", sys.executable, "-c", "import time; x = b'x' * 10**8; time.sleep(2)")
    return folder / "home"


@pytest.fixture
def runs(two_runs: Path, tmp_path: Path) -> Holter:
    """The two, to be written on."""
    shutil.copytree(two_runs, tmp_path / "home")
    (tmp_path / "work").mkdir()
    return Holter(tmp_path / "home", tmp_path / "work")


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def listed(runs: Holter, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(runs("ls", "--json", *options)).splitlines()]


def test_a_run_is_tagged_and_found_by_its_tag(runs: Holter) -> None:
    """By id or name; --remove takes a tag away."""
    assert said(runs("tag", "small", "baseline", "lr=3e-4")) == "r-0001: baseline, lr=3e-4\n"
    assert [row["id"] for row in listed(runs, "--tag", "lr=3e-4")] == ["r-0001"]
    assert said(runs("tag", "r-0001", "--remove", "lr=3e-4")) == "r-0001: baseline\n"
    assert listed(runs, "--tag", "lr=3e-4") == []
    assert listed(runs)[1]["tags"] == ["baseline"]


def test_the_table_has_tags_and_a_mark_only_where_there_are_some(runs: Holter) -> None:
    """Nobody who tags nothing sees a column of nothing."""
    plain = said(runs("ls"))
    runs("tag", "small", "baseline")
    runs("note", "small", "the seed was 7")
    noted = said(runs("ls"))

    assert plain.splitlines()[0].split() == ["RUN", "NAME", "STARTED", "LASTED", "ENDING", "WHY"]
    assert noted.splitlines()[0].split()[:4] == ["RUN", "NAME", "TAGS", "STARTED"]
    assert "(note) baseline" in noted


def test_a_note_is_written_printed_shown_and_taken_away(runs: Holter) -> None:
    """`holter note` has all of it, `holter why` has it in one line, under a healthy verdict and under a page."""
    runs("note", "small", "the seed was 7\nand the data old")
    runs("note", "large", "twin of r-0001")
    runs("tag", "large", "good")

    assert said(runs("note", "small")) == "the seed was 7\nand the data old\n"
    assert "\n  Note   the seed was 7 and the data old\n" in said(runs("why", "small"))
    assert said(runs("why", "large")).splitlines()[1] == "  Note   [good] twin of r-0001"
    runs("note", "small", "--remove")
    assert said(runs("note", "small")).startswith("r-0001 has no note.")
    assert "Note" not in said(runs("why", "small"))


def test_the_verdict_as_json_has_them_beside_what_it_had(runs: Holter) -> None:
    """The fields of schema 1 stay; tags and note are there for every run, empty or not."""
    runs("tag", "small", "a", "b")
    small, large = runs.why("small"), runs.why("large")

    assert {"id", "name", "command", "started", "ended", "host", "frameworks"} < set(small["run"])
    assert (small["schema"], small["run"]["tags"], small["run"]["note"]) == (2, ["a", "b"], "")
    assert (large["run"]["tags"], large["run"]["note"]) == ([], "")


def test_a_run_is_renamed_and_found_by_its_new_name_alone(runs: Holter) -> None:
    """An empty name brings back the one that it was started with."""
    assert said(runs("rename", "small", "warm-up")) == "r-0001 is called 'warm-up'\n"
    assert runs.why("warm-up")["run"]["name"] == "warm-up"
    assert runs("why", "small").returncode == 3
    assert [row["id"] for row in listed(runs, "--name", "warm")] == ["r-0001"]
    assert said(runs("rename", "warm-up", "")) == "r-0001 is called 'small'\n"


def test_runs_are_sorted_by_what_was_asked_for(runs: Holter) -> None:
    """The newest first, the longest, the largest, or by name; the table then has the peak."""
    by = {key: [row["name"] for row in listed(runs, "--sort", key)] for key in ("started", "duration", "peak", "name")}

    assert by == {key: ["large", "small"] for key in ("started", "duration", "peak", "name")}
    runs("rename", "large", "z")
    assert [row["name"] for row in listed(runs, "--sort", "name")] == ["small", "z"]
    assert listed(runs, "--sort", "peak")[0]["peak"] > 10**8
    assert "PEAK" in said(runs("ls", "--sort", "peak")).splitlines()[0]


def test_a_run_that_is_on_can_be_written_on(runs: Holter) -> None:
    """It is still on, and its record ends as it would have."""
    running = runs.start("run", "--", sys.executable, "-c", "print('on', flush=True); input()", stdin=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    done = [runs("tag", "r-0003", "live"), runs("note", "r-0003", "look at it"), runs("rename", "r-0003", "now")]
    during = runs.why("now")
    running.communicate(b"\n", timeout=60)
    after = runs.why("now")

    assert [one.returncode for one in done] == [0, 0, 0]
    assert (during["ending"]["kind"], after["ending"]["kind"]) == ("running", "completed")
    assert (after["run"]["tags"], after["run"]["note"]) == (["live"], "look at it")


def test_a_copied_record_is_written_on_by_its_folder(runs: Holter, tmp_path: Path) -> None:
    """As `holter why` reads one; the run that it was copied from is not touched."""
    copied = tmp_path / "copied"
    shutil.copytree(runs.record(1), copied)

    assert said(runs("tag", str(copied), "theirs")) == "copied: theirs\n"
    assert runs.why(str(copied))["run"]["tags"] == ["theirs"]
    assert runs.why("r-0001")["run"]["tags"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tag", "r-0042", "x"], 3, "holter ls"),
        (["tag", "small"], 2, "TAG"),
        (["tag", "small", " "], 2, "can't be a tag"),
        (["tag", "small", "x" * 41], 2, "1 to 40 letters"),
        (["tag", "small", "\x1b[2J"], 2, "can't be a tag"),
        (["tag", "small", *(f"t{n}" for n in range(21))], 2, "20 fit"),
        (["note", "r-0042", "x"], 3, "holter ls"),
        (["note", "small", "x" * 4001], 2, "4,000 fit"),
        (["note", "small", ""], 2, "--remove"),
        (["note", "small", "x", "--remove"], 2, "takes no text"),
        (["rename", "small"], 2, "NAME"),
        (["rename", "r-0042", "x"], 3, "holter ls"),
        (["rename", "small", "r-0007"], 2, "is the id of a run"),
        (["rename", "small", "x" * 101], 2, "up to 100 letters"),
        (["rename", "small", "a\nb"], 2, "can't be a name"),
        (["ls", "--sort", "luck"], 2, "started"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_a_mistake_gets_one_line_and_changes_nothing(runs: Holter, arguments: list[str], code: int, says: str) -> None:
    """Fact, remedy, exit code."""
    done = runs(*arguments)

    assert says in done.stderr.decode()
    assert b"\x1b" not in done.stderr
    assert (done.returncode, done.stdout) == (code, b"")
    assert not list(runs.home.rglob("*labels.json*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a record to another user needs root")
def test_another_users_record_gets_one_line_and_code_6(runs: Holter) -> None:
    """In a shared $HOLTER_HOME."""
    os.chown(runs.record(1), 65534, 65534)
    found = [runs("tag", "r-0001", "x"), runs("note", "r-0001", "x"), runs("rename", "r-0001", "x")]

    assert [done.returncode for done in found] == [6, 6, 6]
    assert all(done.stderr.startswith(b"holter: r-0001 is another user's record.") for done in found)
    assert all(done.stderr.count(b"\n") == 1 for done in found)


def test_what_a_stranger_wrote_cannot_write_to_the_terminal(runs: Holter) -> None:
    """A record from elsewhere may have any labels in it."""
    hostile = {"name": "\x1b[2Jn", "tags": ["\x1b]0;t\x07"], "note": "a\x1b[31mb\u202ec\n\x07d"}
    (runs.record(1) / "labels.json").write_text(json.dumps(hostile))
    shown = [runs("ls"), runs("why", "r-0001"), runs("note", "r-0001"), runs("tag", "r-0001", "x")]

    assert all(not set("\x1b\x07\u202e") & set(said(done)) for done in shown)
