"""What `holter run --export` starts beside the run: one process for each tool, which reads the record and nothing else.

The tool's package, its network and its faults are in that process. It is told of the end of the run, has a few seconds
to hand on what is known last, and when it dies the run does not know.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from holter.errors import UsageError
from holter.own_process import own_process
from holter.views.export import Ticket, names, tool

_WAIT = 8.0  # seconds at the end of the run for what is still on its way


class Exports:
    """The exporters of one run; under `--heal` each attempt has its own."""

    def __init__(self, asked: tuple[str, ...], report: Callable[[str], None], *, quiet: bool) -> None:
        self._report, self._quiet = report, quiet
        self._mark = secrets.token_urlsafe(16)
        self._asked: list[tuple[str, str]] = []
        self._listeners: dict[str, socket.socket] = {}
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.environ: dict[str, str] = {}
        for word in dict.fromkeys(asked):
            name, _, where = word.partition("=")
            if name not in names():
                raise UsageError(f"--export {name} is not known", f"Use one of: {', '.join(names())}")
            module = tool(name)
            if where and not getattr(module, "WHERE", ""):
                raise UsageError(f"{name} takes no destination", f"Say: --export {name}")
            if getattr(module, "LISTENS", False):
                # Here and not there: the command is told the port, and must not wait until someone is behind it.
                self._listeners[name] = socket.create_server(("127.0.0.1", 0))
            port = self._listeners[name].getsockname()[1] if name in self._listeners else 0
            if hasattr(module, "environment"):
                self.environ.update(module.environment(Ticket(self._mark, port), {**os.environ, **self.environ}))
            self._asked.append((name, where))

    def began(self, folder: Path) -> None:
        """An attempt is on, and its record is there; never raises, and takes milliseconds."""
        self._end()
        for name, where in self._asked:
            listener = self._listeners[name].fileno() if name in self._listeners else -1
            order = {"name": name, "where": where, "folder": str(folder), "cwd": os.getcwd(), "mark": self._mark}
            try:
                # From the record's folder, which an empty entry of PYTHONPATH then leads to.
                process = subprocess.Popen(
                    own_process("holter.commands._exporter"), stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if self._quiet else None,
                    cwd=folder, start_new_session=True, pass_fds=[listener] if listener >= 0 else [],
                )  # fmt: skip
                self._started.append((name, process))
                _send_line(process, json.dumps({**order, "listener": listener}).encode() + b"\n")
            except OSError as error:
                self._report(f"export to {name}: it could not be started ({error.strerror})")

    def around(self, show: Callable[[Path], None]) -> Callable[[Path], None]:
        """The end of the run: what is known last is handed on while the verdict is shown, and waited for after it."""

        def shown(folder: Path) -> None:
            self._end()
            try:
                show(folder)
            finally:
                self.close()

        return shown

    def close(self) -> None:
        """Wait a moment for what is on its way, and end what takes longer."""
        deadline = time.monotonic() + _WAIT
        for name, process in self._started:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self._report(f"export to {name}: not everything was sent within {_WAIT:.0f} s after the end")
        for listener in self._listeners.values():
            listener.close()

    def _end(self) -> None:
        for _name, process in self._started:
            if process.stdin is not None and not process.stdin.closed:
                _send_line(process, b"end\n")  # in words: a keeper that was forked meanwhile may hold the pipe open
                try:
                    process.stdin.close()
                except OSError:
                    pass


def _send_line(process: subprocess.Popen[bytes], line: bytes) -> None:
    try:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()
    except OSError:
        pass  # it is gone, and has said why
