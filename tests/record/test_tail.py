"""The last 256 KB of the output, whatever was written before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holter.record.tail import KEEP, OutputTail, read_tail

sizes = st.lists(st.one_of(st.integers(0, 300), st.integers(KEEP - 3, KEEP + 3), st.integers(0, 3 * KEEP)), max_size=12)


@settings(max_examples=40, deadline=None)
@given(sizes)
def test_any_sequence_of_writes_leaves_its_end(pieces: list[int]) -> None:
    """Pieces of any size, empty ones and ones larger than all that is kept."""
    source = os.urandom(sum(pieces))
    with tempfile.TemporaryDirectory() as folder:
        tail = OutputTail(Path(folder) / "tail")
        at = 0
        for size in pieces:
            tail.write(source[at : at + size])
            at += size

        assert read_tail(Path(folder) / "tail") == source[-KEEP:]


@pytest.mark.parametrize("raw", [b"", b"HOLTTAIL", b"x" * (KEEP + 64), b"HOLTTAIL" + b"\xff" * (KEEP + 56)])
def test_what_is_no_tail_of_ours_is_empty(tmp_path: Path, raw: bytes) -> None:
    """Short, foreign and damaged files are no output."""
    path = tmp_path / "output.tail"
    path.write_bytes(raw)

    assert read_tail(path) == b""


def test_a_tail_that_is_not_there_or_is_a_link_is_empty(tmp_path: Path) -> None:
    """A link could show a file from outside the record."""
    OutputTail(tmp_path / "real").write(b"hello")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert read_tail(tmp_path / "real") == b"hello"
    assert read_tail(tmp_path / "link") == b""
    assert read_tail(tmp_path / "none") == b""


@pytest.mark.root
def test_a_full_disk_is_found_when_it_is_made(small_disk: Path) -> None:
    """Never later: a store into memory without a page behind it would kill the keeper."""
    with pytest.raises(OSError, match="No space left"):
        OutputTail(small_disk / "output.tail")

    assert read_tail(small_disk / "output.tail") == b""
