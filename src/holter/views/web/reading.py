"""Asks the record worker, a process of its own that is there only while there is something to read."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any

_IDLE = 20.0  # seconds after which a worker that nobody asks is ended


class Unreadable(Exception):
    """A record that can't be shown, with the reason in words."""


class Reading:
    """One worker, one question at a time; it is started when it is needed and ended when it is not."""

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
        for _attempt in range(2):  # a worker that was killed, for lack of memory perhaps, is started once more
            worker = self._started()
            self._asked = time.monotonic()
            try:
                assert worker.stdin is not None
                assert worker.stdout is not None
                worker.stdin.write(question)
                worker.stdin.flush()
                line = worker.stdout.readline()
            except OSError:
                line = b""
            self._asked = time.monotonic()
            if line.endswith(b"\n"):
                return line
            self._end()
        raise Unreadable("it could not be read: the process that reads records was ended")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process

    def warm(self) -> None:
        """Start the worker, since it is about to be asked: it takes a quarter of a second to be there."""
        with self._lock:
            self._asked = time.monotonic()
            self._started()

    def tidy(self) -> None:
        """End the worker when nobody has asked for a while."""
        if self._process is None or time.monotonic() - self._asked < _IDLE or not self._lock.acquire(blocking=False):
            return
        try:
            self._end()
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        worker, self._process = self._process, None
        if worker is None:
            return
        if worker.stdin is not None:
            with contextlib.suppress(OSError):  # of a question that it was killed before reading
                worker.stdin.close()
        try:
            worker.wait(2)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()
