"""Does something in a forked child and brings the answer back: whatever happens there, this process stays as it was."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any


class Lost(Exception):
    """The child gave no answer; the reason is in words."""


def can_fork() -> bool:
    """Forking is safe to compute after on Linux; on macOS its frameworks do not survive it."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def aside(act: Callable[[], Any], patience: float = 120.0) -> Any:
    """The answer of `act`, as JSON can carry it, from a child that is ended when its time is over."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _answer(act, reading, writing)
    os.close(writing)
    text = _read(reading, pid, patience)
    try:
        found = json.loads(text)
    except ValueError:
        raise Lost("the process that tried it ended without an answer") from None
    if "error" in found:
        raise Lost(found["error"])
    return found["answer"]


def _answer(act: Callable[[], Any], reading: int, writing: int) -> None:
    code = 1
    try:
        os.close(reading)
        _first_to_go()
        quiet = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(quiet, stream)
        try:
            found = {"answer": act()}
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        with os.fdopen(writing, "w") as pipe:
            json.dump(found, pipe)
        code = 0
    finally:
        os._exit(code)


def _first_to_go() -> None:
    """Should memory run out all the same, the kernel takes this process and no other."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _read(reading: int, pid: int, patience: float) -> str:
    deadline = time.monotonic() + patience
    pieces: list[bytes] = []
    with os.fdopen(reading, "rb") as pipe:
        while True:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                os.kill(pid, signal.SIGKILL)
                break
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                break
            pieces.append(piece)
    os.waitpid(pid, 0)
    return b"".join(pieces).decode("utf-8", "replace")
