"""Turns a forked process into the user's command, with signals, streams and limits as they were before Holter came."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holter.recorder.launch import oom_score
from holter.recorder.launch.streams import Streams, closed


@dataclass
class Order:
    """What to start, and where to write about it."""

    command: Sequence[str]
    environ: Mapping[str, str]
    folder: Path | None
    agent_dir: Path | None
    take_terminal: bool
    signal_mask: set[int]
    oom_score_adj: str | None = None  # the command's own, whatever ours has become since


def become_plainly(order: Order) -> None:
    """Turn into the command without a keeper: its own streams, group and number. Raises OSError when it can't."""
    adopt_orphans(False)  # it would outlast the change of program
    _as_it_was(order)
    for fd in closed():
        os.close(fd)
    _exec(list(order.command), dict(order.environ))


def become(order: Order, streams: Streams, go: int, failure_fd: int) -> None:
    """In the new process: take the streams and turn into the command, once we are told to."""
    try:
        os.setpgid(0, 0)
        word = os.read(go, 1)
        if not word:  # the recorder was killed before anything began
            raise OSError(errno.ECANCELED, "")
        if order.take_terminal:
            os.tcsetpgrp(0, os.getpid())  # SIGTTOU is still ignored here
        _as_it_was(order)
        if word == b"r":
            if streams.stdout != 1:
                os.dup2(streams.stdout, 1)
            if streams.stderr != 2:
                os.dup2(streams.stderr, 2)
        for fd in closed():
            os.close(fd)
        _exec(list(order.command), dict(order.environ))
    except OSError as error:
        os.write(failure_fd, str(error.errno or errno.ENOEXEC).encode())
    except BaseException:
        os.write(failure_fd, str(errno.ENOEXEC).encode())
    finally:
        os._exit(127)


def _as_it_was(order: Order) -> None:
    """Signals, and what the kernel knows of us, as they were before we came."""
    for number in range(1, signal.NSIG):
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        try:
            signal.signal(number, signal.SIG_IGN if number in _INHERITED_IGNORED else signal.SIG_DFL)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, order.signal_mask)
    if order.oom_score_adj is not None:
        oom_score.set_back(order.oom_score_adj)


def _exec(command: list[str], environ: dict[str, str]) -> None:
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        found = shutil.which(command[0], path=environ.get("PATH"))
        if error.errno != errno.ENOEXEC or found is None:
            raise
        # A script without a first line that names its interpreter: every shell runs it with sh.
        os.execve("/bin/sh", ["sh", found, *command[1:]], environ)


def _ignored_at_start() -> set[int]:
    """Signals that were ignored before Python touched any, as under nohup; the command inherits that."""
    ignored = set()
    for number in range(1, signal.NSIG):
        # Python itself ignores SIGPIPE and SIGXFSZ; the command must not inherit that from us.
        if number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", -1)):
            continue
        try:
            if signal.getsignal(number) is signal.SIG_IGN:
                ignored.add(number)
        except ValueError:
            continue
    return ignored


_INHERITED_IGNORED = _ignored_at_start()


def adopt_orphans(adopt: bool = True) -> None:
    """Have the kernel hand us processes whose parent died (Linux), so that they are seen and reaped."""
    if sys.platform.startswith("linux"):
        import ctypes

        try:
            ctypes.CDLL(None).prctl(36, int(adopt), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        except (OSError, AttributeError):
            pass
