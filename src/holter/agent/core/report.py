"""Rare facts from inside the process: JSON lines appended to a file of this process's own."""

import os
import time

# An agent that talks too much is cut off: the record stays bounded whatever the script does.
_MAX_LINES = 5000
_MAX_BYTES = 4 << 20


class Say:
    """Appends one line per fact with a single write, so that a kill leaves at most one torn line at the end."""

    def __init__(self, path):
        self.path = path
        self.pid = os.getpid()
        self.lines = 0
        self.bytes = 0
        self.torn = False

    def __call__(self, kind, /, **fields):
        if self.lines >= _MAX_LINES or self.bytes >= _MAX_BYTES:
            return
        self.lines += 1
        try:
            data = self._line(kind, fields)
        except Exception:
            return  # something that can't be written down: the rest still can
        try:
            self._append(data)
        except OSError:
            self.lines = _MAX_LINES  # a full or vanished folder: fall silent, the training goes on

    def _line(self, kind, fields):
        import json  # not before there is something to say: a script may bring a module of that name itself

        line = {"k": kind, "t": time.time(), "m": time.monotonic(), "pid": self.pid}
        line.update(fields)
        return json.dumps(line, default=str, separators=(",", ":")).encode("utf-8", "replace") + b"\n"

    def _append(self, data):
        # Opened for each line: a script that closes all files may have been given our number for one of its own.
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if self.torn:
                data = b"\n" + data
            self.bytes += len(data)
            self.torn = os.write(fd, data) != len(data)
        finally:
            os.close(fd)
