"""Following a record: at any moment it is what opening it anew would give."""

from __future__ import annotations

import json
import os
from pathlib import Path

from holter.record import lines, place
from holter.record.follow import Follower
from holter.record.reader import open_record, start_time
from holter.record.recent import recent, written
from holter.record.writer import RecordWriter


def begin(home: Path, clock=None) -> RecordWriter:
    folder = place.new_run(home)
    writer = RecordWriter(folder, clock or (lambda: 0.0))
    pid = os.getpid()
    meta = {"schema": 1, "id": folder.name, "host": os.uname().nodename, "recorder_pid": pid}
    writer.meta({**meta, "recorder_start": start_time(pid), "started": 1e9, "mono": 0.0})
    return writer


def sample(m: float) -> dict:
    return {"k": "sample", "t": 1e9 + m, "m": m, "processes": {"rss": m}}


def same(follower: Follower) -> bool:
    whole = open_record(follower.folder)
    mine = follower.record
    return (mine.events, mine.timeline, mine.live) == (whole.events, whole.timeline, whole.live)


def test_what_is_written_is_read_once_and_in_order(tmp_path):
    """Timeline and events, many small additions."""
    writer = begin(tmp_path)
    follower = Follower(writer.folder)
    for m in range(1, 40):
        writer.timeline([sample(float(m))])
        if m % 5 == 0:
            writer.event("said", text=str(m))

        assert follower.refresh()
        assert same(follower)
    assert not follower.refresh()


def test_half_a_line_waits_for_its_other_half(tmp_path):
    """A write that is seen in its middle costs nothing."""
    writer = begin(tmp_path)
    writer.timeline([sample(1.0)])
    follower = Follower(writer.folder)
    path = writer.folder / "timeline" / "000001.jsonl"
    whole = lines.dump(sample(2.0))
    with path.open("ab") as file:
        file.write(whole[:10])
    assert not follower.refresh()
    with path.open("ab") as file:
        file.write(whole[10:])

    assert follower.refresh()
    assert [line["m"] for line in follower.record.timeline] == [1.0, 2.0]


def test_segments_that_are_packed_meanwhile_are_read_anew(tmp_path):
    """After hours the old ones are thinner; what is followed is what the record holds now."""
    now = [0.0]
    writer = begin(tmp_path, lambda: now[0])
    follower = Follower(writer.folder)
    for m in range(0, 9000, 5):
        now[0] = float(m)
        writer.timeline([sample(float(m))])
        if m % 500 == 0:
            follower.refresh()
            assert same(follower)

    assert list((writer.folder / "timeline").glob("*.gz"))
    assert len(follower.record.timeline) < 1500


def test_the_end_is_seen(tmp_path):
    """A run that has ended is no longer live."""
    writer = begin(tmp_path)
    writer.timeline([sample(1.0)])
    follower = Follower(writer.folder)
    assert follower.record.live
    writer.event("end", exit_code=0)
    follower.refresh()

    assert not follower.record.live


def test_the_last_moments_are_read_without_the_rest(tmp_path):
    """Of a record of megabytes only the last lines, whole, with the facts of the start."""
    writer = begin(tmp_path)
    writer.timeline([{**sample(float(m)), "pad": "x" * 500} for m in range(5000)])
    before = written(writer.folder)
    found = recent(writer.folder)
    writer.timeline([sample(9999.0)])

    assert 10 < len(found.timeline) < 200
    assert found.timeline[-1]["m"] == 4999.0
    assert found.meta == json.loads((writer.folder / "record.json").read_text())
    assert found.live
    assert written(writer.folder) != before
