"""A record survives a kill at any byte and a disk that fills up."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holter.record import lines, place
from holter.record.events.recorder import Said, StallOver
from holter.record.events.timeline import Sample
from holter.record.reader import open_record
from holter.record.writer import RecordWriter


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sample(m: float, **probes: Any) -> dict[str, Any]:
    return {"k": "sample", "t": m, "m": m, **probes}


def write_some(base: Path) -> Path:
    """A record of 40 events and 40 samples."""
    folder = place.new_run(base)
    writer = RecordWriter(folder)
    writer.meta({"schema": 1, "id": folder.name})
    for number in range(40):
        writer.event("said", text=f"line {number}")
        writer.timeline([sample(float(number), number=number)])
    writer.close()
    return folder


def whole_lines(raw: bytes) -> int:
    return raw.count(b"\n")


@pytest.mark.parametrize("name", [place.EVENTS, "timeline/000001.jsonl"])
def test_a_file_cut_at_any_byte_opens_with_all_its_whole_lines(tmp_path: Path, name: str) -> None:
    """Every prefix of a file is a file with all lines that were finished in it."""
    folder = write_some(tmp_path)
    raw = (folder / name).read_bytes()
    for size in range(len(raw) + 1):
        (folder / name).write_bytes(raw[:size])

        record = open_record(folder)

        found = record.events if name == place.EVENTS else record.timeline
        # A line that lacks nothing but its end is whole too.
        assert len(found) in (whole_lines(raw[:size]), whole_lines(raw[: size + 1])), f"cut after {size} bytes"
        assert [line.get("number", index) for index, line in enumerate(found)] == list(range(len(found)))


def test_a_packed_segment_cut_at_random_bytes_still_opens(tmp_path: Path) -> None:
    """A segment that was thinned and packed and then lost its end opens with what is left."""
    folder = place.new_run(tmp_path)
    clock = Clock()
    writer = RecordWriter(folder, clock)
    writer.meta({"schema": 1})
    for _ in range(4 * 3600):
        writer.timeline([sample(clock.now, processes={"rss": 1})])
        clock.now += 1.0
    writer.close()
    packed = sorted((folder / "timeline").glob("*.gz"))[0]
    raw = packed.read_bytes()
    for size in random.Random(1).sample(range(len(raw)), 40):
        packed.write_bytes(raw[:size])

        assert open_record(folder).of(Sample)


def test_meta_is_whole_or_not_there(tmp_path: Path) -> None:
    """What is replaced never shows half of its new content."""
    folder = place.new_run(tmp_path)

    RecordWriter(folder).meta({"schema": 1, "command": ["python", "\udcff.py"]})

    assert json.loads((folder / place.META).read_bytes())["schema"] == 1
    assert not list(folder.glob("*.partial"))


def test_a_kind_that_is_not_rare_is_cut_off_and_counted(tmp_path: Path) -> None:
    """Two thousand of one kind are kept, the others counted; another kind is not touched by that."""
    folder = place.new_run(tmp_path)
    writer = RecordWriter(folder)
    writer.meta({"schema": 1})
    for _ in range(2010):
        writer.event("stall-over", pid=1)
    writer.event("said", text="hello")
    writer.close()

    record = open_record(folder)

    assert (len(record.of(StallOver)), len(record.of(Said))) == (2000, 1)
    assert writer.dropped == 10


@pytest.mark.root
def test_a_full_disk_costs_lines_that_are_counted_and_no_more(small_disk: Path) -> None:
    """Reading works while the disk is full, and writing goes on when there is room again."""
    clock = Clock()
    folder = place.new_run(small_disk)
    writer = RecordWriter(folder, clock)
    writer.meta({"schema": 1})
    writer.event("said", text="before")
    sent = 0
    while not writer.dropped:
        writer.timeline([sample(clock.now, text="x" * 700)])
        clock.now, sent = clock.now + 1.0, sent + 1
    full = open_record(folder)
    kept = len(full.of(Sample))
    for _ in range(20):
        writer.event("said", text="y" * 300)
        clock.now += 1.0
    lost = writer.dropped
    subprocess.run(["mount", "-o", "remount,size=256k", str(small_disk)], check=True)
    clock.now += 10.0
    writer.event("said", text="after")
    writer.timeline([sample(clock.now, text="after")])
    writer.close()
    record = open_record(folder)

    assert kept == sent - 1
    assert 2 <= lost <= 21
    assert writer.problem == "No space left on device"
    assert record.of(Said)[-1].text == "after"
    assert record.timeline[-1]["text"] == "after"
    assert len(record.of(Sample)) == kept + 1
    assert len(record.of(Said)) + len(record.of(Sample)) + writer.dropped == sent + 1 + 20 + 2


@pytest.mark.root
def test_a_disk_that_is_full_for_a_day_makes_no_files(small_disk: Path) -> None:
    """A segment that can't be begun is not begun again each second, and leaves no empty ones."""
    clock = Clock()
    folder = place.new_run(small_disk)
    with open(small_disk / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass
    writer = RecordWriter(folder, clock)
    for _ in range(86400 // 5):
        writer.timeline([sample(clock.now)])
        clock.now += 5.0

    assert writer.dropped >= 86400 // 5 - 1
    assert len(list((folder / "timeline").iterdir())) <= 1


def test_a_segment_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    """A kill between packing a segment and removing the plain one leaves both."""
    folder = write_some(tmp_path)
    plain = folder / "timeline" / "000001.jsonl"
    (folder / "timeline" / "000001.jsonl.gz").write_bytes(lines.pack(plain.read_bytes()))

    assert len(open_record(folder).of(Sample)) == 40


def test_what_an_error_quotes_of_a_secret_is_not_written(tmp_path: Path) -> None:
    """Nor in the error that it came from; what is no secret is written as it was."""
    writer = RecordWriter(place.new_run(tmp_path))
    cause = {"type": "OSError", "message": "https://me:s3cr3tV4lue@host refused"}
    writer.event("exception", type="ValueError", message="token=s3cr3tV4lue, max_tokens=512", chain=[cause])
    writer.close()
    written = (writer.folder / place.EVENTS).read_text()

    assert "s3cr3tV4lue" not in written
    assert "max_tokens=512" in written
