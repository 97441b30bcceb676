"""What a stream was before us."""

from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

from holter.recorder.launch.streams import kind_of


def test_each_kind_of_stream_is_known(tmp_path: Path) -> None:
    """A terminal, a pipe, a file, nothing, something else, and one that is closed."""
    ours, theirs = pty.openpty()
    read, write = os.pipe()
    file = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    null = os.open(os.devnull, os.O_RDWR)
    zero = os.open("/dev/zero", os.O_RDONLY)
    one, two = socket.socketpair()
    closed = os.dup(null)
    os.close(closed)
    try:
        found = [kind_of(fd) for fd in (theirs, read, write, file, null, zero, one.fileno(), closed)]
    finally:
        for fd in (ours, theirs, read, write, file, null, zero):
            os.close(fd)
        one.close()
        two.close()

    assert found == ["tty", "pipe", "pipe", "file", "null", "other", "other", "closed"]
