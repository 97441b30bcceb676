"""The user's files that events name are kept with the record: once, masked, within bounds."""

from __future__ import annotations

import os

from holter.record import place
from holter.record.reader import open_record
from holter.record.writer import RecordWriter


def test_a_file_that_an_event_names_can_be_read_from_the_record(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\nhistory.append(loss)\n")
    record = written(tmp_path, {"k": "made", "m": 1.0, "t": 1.0, "file": str(script), "line": 2})

    assert record.source(str(script))[:2] == ["import torch", "history.append(loss)"]


def test_it_is_kept_as_it_was_when_it_was_first_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("first\n")
    folder = place.new_run(tmp_path / "home")
    writer = RecordWriter(folder)
    writer.meta({"schema": 1})
    writer.event("made", file=str(script))
    script.write_text("second\n")
    writer.event("made", file=str(script))
    writer.close()

    assert open_record(folder).source(str(script))[0] == "first"


def test_files_of_frames_are_kept_only_where_they_are_the_users(tmp_path):
    mine, library = tmp_path / "mine.py", tmp_path / "library.py"
    mine.write_text("a\n")
    library.write_text("b\n")
    frames = [{"file": str(mine), "user": True}, {"file": str(library), "user": False}]
    record = written(tmp_path, {"k": "stacks", "m": 1.0, "t": 1.0, "threads": [{"frames": frames}]})

    assert set(record.sources) == {str(mine)}


def test_secrets_in_a_script_are_masked(tmp_path):
    script = tmp_path / "train.py"
    script.write_text('login(token="hf_abcdefghijklmnopqrstuvwxyz")\n')
    record = written(tmp_path, {"k": "made", "m": 1.0, "t": 1.0, "file": str(script)})

    assert "hf_abcdef" not in "".join(record.source(str(script)))


def test_what_is_no_ordinary_file_or_too_large_is_left_out(tmp_path):
    large, fifo = tmp_path / "large.py", tmp_path / "fifo.py"
    large.write_bytes(b"x" * (300 << 10))
    os.mkfifo(fifo)
    names = [str(large), str(fifo), str(tmp_path / "absent.py"), "<stdin>", "relative.py", str(tmp_path), 7, None]
    record = written(tmp_path, *({"k": "made", "m": 1.0, "t": 1.0, "file": name} for name in names))

    assert record.sources == {}


def test_at_most_forty_files_are_kept(tmp_path):
    events = []
    for n in range(50):
        (tmp_path / f"f{n}.py").write_text("x\n")
        events.append({"k": "made", "m": 1.0, "t": 1.0, "file": str(tmp_path / f"f{n}.py")})
    record = written(tmp_path, *events)

    assert len(record.sources) == 40


def written(folder, *events):
    run = place.new_run(folder / "home")
    writer = RecordWriter(run)
    writer.meta({"schema": 1})
    writer.events(list(events))
    writer.close()
    return open_record(run)
