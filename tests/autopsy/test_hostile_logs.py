"""Logs that nobody would want to read: binary, one endless line, full of terminal codes, or larger than memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HOLTER, Holter

SECONDS, BYTES = 5.0, 200e6
END = b'Traceback (most recent call last):\n  File "/home/x/train.py", line 3, in <module>\n    x = y\nNameError: y\n'


def measured(log: Path) -> tuple[dict[str, Any], float, int]:
    """The answer, and what it took: seconds of a core, since other programs take theirs, and bytes at the peak."""
    script = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr); sys.exit(done.returncode)"
    )
    words = [sys.executable, "-c", script, *HOLTER, "autopsy", str(log), "--json"]
    done = subprocess.run(words, capture_output=True, check=True)
    seconds, most = done.stderr.split()[-2:]
    return json.loads(done.stdout), float(seconds), int(most) * (1 if sys.platform == "darwin" else 1024)


def sparse(path: Path, size: int, *parts: tuple[int, bytes]) -> Path:
    """A file of any size that takes no room: parts of it hold something, the rest is holes."""
    with path.open("wb") as file:
        file.truncate(size)
        for at, part in parts:
            file.seek(at)
            file.write(part)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty", b""),
        ("binary", os.urandom(1 << 20)),
        ("zeros", bytes(1 << 20)),
        ("no newline", b"loss 0.5 " * 100_000),
        ("escapes", b"\x1b[31m\x1b]0;title\x07\x1b[2J\x9b31m" * 50_000 + END),
        ("unfinished escapes", b"\x1b]" * 300_000 + b"\x1b[" + b"0" * 500_000),
        ("brackets", b"(" * 500_000 + b"Killed" * 50_000),
        ("a bar", b"".join(b"\r 45%%|####      | %d/100000 [00:01<00:02, loss=nan" % n for n in range(40_000))),
        ("frames", b"Traceback (most recent call last):\n" + b'  File "a.py", line 1, in f\n    f()\n' * 60_000),
        ("tracebacks", END * 20_000),
        ("utf-16", END.decode().encode("utf-16")),
        ("lines", b"\n" * 3_000_000),
        ("percent", b"100%|" * 400_000),
        ("epochs", b"epoch epoch epoch " * 150_000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_any_bytes_are_read_in_time(tmp_path: Path, name: str, content: bytes) -> None:
    """Whatever is in it: an answer, within the bounds, that a terminal can show."""
    log = tmp_path / "train.log"
    log.write_bytes(content)
    _found, seconds, peak = measured(log)
    shown = subprocess.run([*HOLTER, "autopsy", str(log)], capture_output=True, check=True).stdout.decode()

    assert (seconds <= SECONDS, peak <= BYTES) == (True, True), (name, seconds, peak)
    assert not {character for character in shown if ord(character) < 32} - {"\n"}


def test_of_ten_gigabytes_the_ends_and_the_marks_are_read(tmp_path: Path) -> None:
    """What stands in the middle is not; that is said."""
    size = 10 << 30
    log = sparse(tmp_path / "train.log", size, (0, b"epoch 1/9\n"), (size - len(END), END))
    found, seconds, peak = measured(log)

    assert (seconds <= SECONDS, peak <= BYTES) == (True, True), (seconds, peak)
    assert [one["cause"] for one in found["findings"]] == ["user-error"]
    assert any("were not read" in text for text in found["unseen"])


def test_an_error_before_a_flood_is_a_mark(tmp_path: Path) -> None:
    """The first error, twenty megabytes before the end, and after it only what other ranks had to say."""
    size = 10 << 30
    log = sparse(
        tmp_path / "train.log",
        size,
        (size - (20 << 20), b"\n" + END),
        (size - 40, b"\nsomething else failed as well\n"),
    )
    found, seconds, _peak = measured(log)

    assert seconds <= SECONDS
    assert found["findings"][0]["cause"] == "user-error"


def test_one_line_of_a_gigabyte_is_a_line(tmp_path: Path) -> None:
    """Without a single end of line."""
    log = sparse(tmp_path / "train.log", 1 << 30, *((at << 20, b"loss 0.5 " * 1000) for at in range(0, 1024, 8)))
    _found, seconds, peak = measured(log)

    assert (seconds <= SECONDS, peak <= BYTES) == (True, True), (seconds, peak)


def test_a_pipe_is_read_as_it_comes(holter: Holter) -> None:
    """`kubectl logs POD | holter autopsy -`: when it was written is not known, and that is said."""
    with subprocess.Popen(
        [*HOLTER, "autopsy", "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=holter.folder
    ) as process:
        out, _ = process.communicate(b"epoch 1\n" * 2_000_000 + END)
    found = json.loads(out)

    assert process.returncode == 0
    assert found["findings"][0]["cause"] == "user-error"
    assert any("when the log was written" in text for text in found["unseen"])


def test_a_pipe_that_nobody_writes_to_does_not_hold_it_up(tmp_path: Path) -> None:
    """It is told that it is no file."""
    os.mkfifo(tmp_path / "train.log")
    done = subprocess.run(
        [*HOLTER, "autopsy", str(tmp_path / "train.log")], capture_output=True, timeout=30, check=False
    )

    assert done.returncode == 2
    assert b"no ordinary file" in done.stderr
