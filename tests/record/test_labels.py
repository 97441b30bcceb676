"""What people write on a record lies beside what was recorded, and is harmless whoever wrote it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from holter.errors import HolterError, NotPermitted
from holter.record.kept import kept_run
from holter.record.labels import FILE, MOST_TAGS, NAME_LETTERS, NOTE_LETTERS, Labels, change_labels, read_labels
from holter.record.reader import read_meta
from holter.record.recent import written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A record of a run that was started as `first`, ten days ago."""
    path = tmp_path / "r-0001"
    path.mkdir()
    (path / "record.json").write_text('{"schema": 1, "id": "r-0001", "name": "first"}')
    for one in (path / "record.json", path):
        os.utime(one, (1.7e9, 1.7e9))
    return path


def test_what_is_written_is_read_again(folder: Path) -> None:
    """A name, tags and a note of several lines."""
    said = Labels("baseline", ("good", "lr-3e-4"), "two epochs\nthen stopped")

    assert change_labels(folder, lambda _: said) == said
    assert read_labels(folder) == said


def test_nothing_that_was_recorded_is_changed(folder: Path) -> None:
    """Another file is written, and the run is as old as it was."""
    before = (folder / "record.json").read_bytes(), kept_run(folder).written
    change_labels(folder, lambda labels: replace(labels, name="second", note="old, and good"))

    assert ((folder / "record.json").read_bytes(), kept_run(folder).written) == before
    assert sorted(path.name for path in folder.iterdir()) == [FILE, "record.json"]
    assert oct((folder / FILE).stat().st_mode & 0o777) == "0o600"


def test_a_new_name_is_the_runs_name(folder: Path) -> None:
    """An empty one brings back the first."""
    change_labels(folder, lambda labels: replace(labels, name="second"))
    second = read_meta(folder)["name"]
    change_labels(folder, lambda labels: replace(labels, name=""))

    assert (second, read_meta(folder)["name"]) == ("second", "first")


def test_a_live_page_sees_a_name_that_is_as_long(folder: Path) -> None:
    """The numbers that tell of a change do change."""
    change_labels(folder, lambda labels: replace(labels, name="abc"))
    before = written(folder)
    change_labels(folder, lambda labels: replace(labels, name="xyz"))

    assert written(folder) != before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 50_000,
        b'{"name": 7, "tags": {"a": 1}, "note": ["x"]}',
        b'{"note": "' + b"x" * 70_000 + b'"}',
        b"\xff\xfe\x00",
    ],
    ids=["empty", "a list", "cut off", "deep", "other types", "too large", "no text"],
)
def test_a_file_that_makes_no_sense_is_no_labels(folder: Path, content: bytes) -> None:
    """And the next tag is written all the same."""
    (folder / FILE).write_bytes(content)

    assert read_labels(folder) == Labels()
    assert change_labels(folder, lambda labels: replace(labels, tags=("a",))).tags == ("a",)


def test_a_link_or_a_pipe_is_not_read(folder: Path, tmp_path: Path) -> None:
    """A link could lead to any file of the user's, and a pipe would never end."""
    (tmp_path / "elsewhere").write_text('{"note": "of somebody else"}')
    (folder / FILE).symlink_to(tmp_path / "elsewhere")
    linked = read_labels(folder)
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)

    assert (linked, read_labels(folder)) == (Labels(), Labels())


def test_hostile_text_is_bounded_and_cannot_write_to_a_terminal(folder: Path) -> None:
    """Control characters, marks that turn the line around and halves of letters go; what is too long is cut."""
    hostile = {
        "name": "a\x1b[2J\u202eb\n" + "n" * 999,
        "tags": [f"t {n}\x07\ud800" for n in range(99)],
        "note": "\x9b" * 9,
    }
    (folder / FILE).write_text(json.dumps(hostile))
    found = read_labels(folder)

    assert found.name.startswith("a[2Jbn")
    assert (len(found.name), len(found.tags), found.tags[0], found.note) == (NAME_LETTERS, MOST_TAGS, "t-0\ufffd", "")
    assert found.name.isprintable()


def test_a_long_note_is_cut(folder: Path) -> None:
    """Somebody else may have written the file."""
    (folder / FILE).write_text(json.dumps({"note": "n" * 2 * NOTE_LETTERS}))

    assert len(read_labels(folder).note) == NOTE_LETTERS


def test_two_who_write_at_once_wait_for_each_other(folder: Path) -> None:
    """No tag of twelve processes is lost."""
    code = (
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from holter.record.labels import change_labels\n"
        "change_labels(Path(sys.argv[1]), lambda labels: replace(labels, tags=(*labels.tags, sys.argv[2])))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(folder), f"t{n}"]) for n in range(12)]

    assert [writer.wait() for writer in writers] == [0] * 12
    assert set(read_labels(folder).tags) == {f"t{n}" for n in range(12)}


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_another_users_record_is_not_written_on(folder: Path) -> None:
    """Not by root either: its owner could not read what root wrote."""
    os.chown(folder, 65534, 65534)

    with pytest.raises(NotPermitted, match="another user's"):
        change_labels(folder, lambda labels: replace(labels, note="x"))
    assert not (folder / FILE).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a folder read-only needs root")
def test_a_read_only_record_is_told_as_such(folder: Path) -> None:
    """As in a container with the records mounted :ro."""
    mounted = subprocess.run(["mount", "--bind", "-o", "ro", str(folder), str(folder)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a folder can't be mounted read-only here: {mounted.stderr.strip()}")
    try:
        with pytest.raises(NotPermitted, match="Read-only file system"):
            change_labels(folder, lambda labels: replace(labels, note="x"))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_what_was_written_before(small_disk: Path) -> None:
    """The old note stays whole, and nothing half-written lies beside it."""
    change_labels(small_disk, lambda labels: replace(labels, note="kept"))
    with open(small_disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while filler.write(b"x" * 4096):
            pass

    with pytest.raises(HolterError, match="No space left on device"):
        change_labels(small_disk, lambda labels: replace(labels, note="n" * 4000))
    assert read_labels(small_disk).note == "kept"
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", FILE]
