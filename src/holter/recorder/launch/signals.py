"""Signals that reach Holter are meant for the command: each is passed on at once, and noted with its sender."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGXCPU")


class Signals:
    """Blocks the signals before anything starts; a thread of its own waits for them."""

    def __init__(self) -> None:
        found = {getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)}
        # What was ignored when we came (nohup, a background job) stays ignored.
        self.set = {number for number in found if signal.getsignal(number) is not signal.SIG_IGN}
        self.before = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, self.set)}
        self.seen: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.group: int | None = None
        self.early: list[int] = []
        self._wake: Callable[[], None] | None = None
        self.listening = False

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called at each signal; a later attempt of the same run takes the listening over."""
        self._wake = wake
        if not self.listening:
            try:
                threading.Thread(target=self._loop, daemon=True).start()
                self.listening = True
            except RuntimeError:
                pass  # at the limit of processes there is no thread to be had: whoever asked has to `poll`

    def poll(self) -> None:
        """Pass on what has come, without waiting for it."""
        while signal.sigpending() & self.set:
            self._pass_on(*self._next())

    def command_is(self, group: int) -> None:
        """From now on signals go to this group, those that came before first."""
        self.group = group
        early, self.early = self.early, []
        for number in early:
            self._send(number)

    def between_attempts(self) -> bool:
        """The command has ended: hold back what comes until the next one runs; True when something came already."""
        self.group = None
        return bool(self.early) or not self.seen.empty()

    def _loop(self) -> None:
        while True:
            self._pass_on(*self._next())
            if self._wake is not None:
                self._wake()

    def _pass_on(self, number: int, sender: dict[str, Any]) -> None:
        if self.group is None:
            self.early.append(number)
        else:
            self._send(number)
        self.seen.put({"signal": signal.Signals(number).name, **sender})

    def _next(self) -> tuple[int, dict[str, Any]]:
        if not hasattr(signal, "sigwaitinfo"):  # macOS: the sender can't be known
            return int(signal.sigwait(self.set)), {}
        info = signal.sigwaitinfo(self.set)
        if info.si_code > 0 or info.si_pid == 0:  # by the kernel: a key on the terminal, a limit
            return info.si_signo, {"sender": "the terminal" if info.si_signo != signal.SIGXCPU else "the kernel"}
        return info.si_signo, {
            "sender_pid": info.si_pid,
            "sender_uid": info.si_uid,
            "sender": _name_of(info.si_pid),
        }

    def _send(self, number: int) -> None:
        if self.group is not None:
            try:
                os.killpg(self.group, number)
            except OSError:
                pass


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "a process that is gone"
