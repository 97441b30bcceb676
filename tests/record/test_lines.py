"""Lines survive what a kill, a bad disk or a stranger does to them."""

from __future__ import annotations

import gzip
import math
import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holter.record import lines

GOOD = {"k": "said", "t": 1.0, "m": 2.0, "text": "hello"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_line_that_is_dumped_is_one_line_that_parses(fields: dict[str, object]) -> None:
    """Whatever the fields hold, also infinities and half characters, the line comes back as one."""
    raw = lines.dump({**fields, **GOOD})

    assert raw.count(b"\n") == 1
    found, bad = lines.parse(raw)
    assert (len(found), bad) == (1, 0)
    assert found[0]["text"] == "hello"


def test_what_json_does_not_know_becomes_null() -> None:
    """NaN and infinity are told as absent, at any depth."""
    found, _bad = lines.parse(lines.dump({**GOOD, "a": math.nan, "b": {"c": [math.inf, 1.5]}}))

    assert (found[0]["a"], found[0]["b"]) == (None, {"c": [None, 1.5]})


@given(st.binary(max_size=300))
def test_any_bytes_between_two_lines_cost_only_themselves(noise: bytes) -> None:
    """Noise never raises, and both whole lines are there."""
    whole = lines.dump(GOOD)

    found, _bad = lines.parse(whole + noise + b"\n" + whole)

    assert found.count(GOOD) == 2


@pytest.mark.parametrize(
    "line",
    [
        b'{"k":"x","t":1,"m":' + b"9" * 400 + b"}",
        b'{"k":"x","t":1e999,"m":1}',
        b'{"k":"x","t":NaN,"m":1}',
        b'{"k":"x","t":true,"m":1}',
        b'{"k":"x","t":"1","m":1}',
        b'{"k":7,"t":1,"m":1}',
        b'{"t":1,"m":1}',
        b"[1,2,3]",
        b"[" * 100_000,
        b'{"k":"x","t":1,"m":1',
        b"\xff\xfe",
    ],
    ids=lambda line: line[:24].decode("latin-1"),
)
def test_what_is_no_line_of_ours_is_counted_and_left_out(line: bytes) -> None:
    """Wrong types, numbers beyond any float, deep nesting and torn ends are no lines."""
    assert lines.parse(line + b"\n") == ([], 1)


def test_a_packed_file_with_a_damaged_place_gives_what_came_before_it(tmp_path: Path) -> None:
    """One flipped byte in the middle costs the lines after it, not those before."""
    rows = [lines.dump({**GOOD, "text": os.urandom(40).hex()}) for _ in range(5000)]
    raw = bytearray(gzip.compress(b"".join(rows)))
    raw[len(raw) // 2] ^= 0xFF
    path = tmp_path / "000001.jsonl.gz"
    path.write_bytes(raw)

    found, bad = lines.read_file(path)

    assert 1500 < len(found) < 5000
    assert bad


def test_a_packed_file_that_swells_is_cut_off(tmp_path: Path) -> None:
    """A few hundred kilobytes that unpack to half a gigabyte of line ends do not fill the memory."""
    path = tmp_path / "000001.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * (64 << 20), 1) * 8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    found, bad = lines.read_file(path)

    assert (found, bad) == ([], 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    """A link could lead out of the record, and a pipe without a writer would never end."""
    (tmp_path / "real.jsonl").write_bytes(lines.dump(GOOD))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")

    assert lines.read_file(tmp_path / "real.jsonl") == ([GOOD], 0)
    assert lines.read_file(tmp_path / "link.jsonl") == ([], 1)
    assert lines.read_file(tmp_path / "pipe.jsonl") == ([], 1)


def test_numbers_and_letters_that_nothing_of_ours_could_hold_become_null_or_a_mark() -> None:
    """NaN, beyond any byte or step, half of a letter; a whole letter and the largest numbers of ours stay."""
    found = lines.loads(
        b'{"a":NaN,"b":1e999,"c":' + b"9" * 5000 + b',"d":-1000000000000000001,"e":123456789012345678,"f":2.5e17,'
        b'"g":"\\ud800x","h":"\\ud83d\\ude00"}'
    )

    assert found == {
        "a": None, "b": None, "c": None, "d": None, "e": 123456789012345678, "f": 2.5e17,
        "g": "\ufffdx", "h": "\U0001f600",
    }  # fmt: skip
