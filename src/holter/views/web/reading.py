"""Asks the reading desk, a process of its own that is there only while there is something to read."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any

_IDLE = 20.0  # seconds after which a desk that nobody asks is put away


class Unreadable(Exception):
    """A record that can't be shown, with the reason in words."""


class Reading:
    """One desk, one question at a time; it is started when it is needed and put away when it is not."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0.0

    def ask(self, **request: Any) -> tuple[bytes, float]:
        """The answer as JSON, and the seconds of work it took; raises Unreadable with the reason."""
        with self._lock:
            line = self._exchange(json.dumps(request).encode() + b"\n")
        # What it found is passed on as it is: only the frame around it is looked at.
        if line.startswith(b'{"found":'):
            found, _, took = line.rpartition(b',"took":')
            return found[len(b'{"found":') :], float(took.rstrip(b"}\n"))
        raise Unreadable(json.loads(line)["error"])

    def _exchange(self, question: bytes) -> bytes:
        for _attempt in range(2):  # a desk that was killed, for lack of memory perhaps, is started once more
            desk = self._started()
            self._asked = time.monotonic()
            try:
                assert desk.stdin is not None
                assert desk.stdout is not None
                desk.stdin.write(question)
                desk.stdin.flush()
                line = desk.stdout.readline()
            except OSError:
                line = b""
            self._asked = time.monotonic()
            if line.endswith(b"\n"):
                return line
            self._put_away()
        raise Unreadable("it could not be read: the process that reads records was ended")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process

    def warm(self) -> None:
        """Start the desk, since it is about to be asked: it takes a quarter of a second to be there."""
        with self._lock:
            self._asked = time.monotonic()
            self._started()

    def tidy(self) -> None:
        """Put the desk away when nobody has asked for a while."""
        if self._process is None or time.monotonic() - self._asked < _IDLE or not self._lock.acquire(blocking=False):
            return
        try:
            self._put_away()
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._put_away()

    def _put_away(self) -> None:
        desk, self._process = self._process, None
        if desk is None:
            return
        if desk.stdin is not None:
            with contextlib.suppress(OSError):  # of a question that it was killed before reading
                desk.stdin.close()
        try:
            desk.wait(2)
        except subprocess.TimeoutExpired:
            desk.kill()
            desk.wait()
        if desk.stdout is not None:
            desk.stdout.close()
