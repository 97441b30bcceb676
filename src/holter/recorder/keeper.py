"""The keeper: a small process between the recorder and the command that outlives the recorder.

It is the command's parent, passes its output on, keeps the last of it, and writes down how it ended. When the
recorder is killed the training goes on: nothing that the command holds leads to the recorder.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.errors import EXIT_HOLTER_FAILED
from holter.record import lines, place
from holter.record.gather import gather
from holter.record.tail import OutputTail
from holter.recorder import streams as streams_module
from holter.recorder.processes import signal_group
from holter.recorder.streams import Followed, Relay, Streams

_QUIET = 0.3  # seconds without output after the end, when something still holds the streams open
_LOOK = 0.2


@dataclass
class Order:
    """What to start, and where to write about it."""

    command: Sequence[str]
    environ: Mapping[str, str]
    folder: Path | None
    guest_dir: Path | None
    take_terminal: bool
    signal_mask: set[int]


class Keeper:
    def __init__(self, order: Order, streams: Streams, link: socket.socket) -> None:
        self.order = order
        self.streams = streams
        self.link = link
        self.tail: OutputTail | None = None
        self.tail_lock = threading.Lock()
        self.pid = 0
        self.ended = threading.Event()
        self.last_output = 0.0
        self.log: int | None = None

    def run(self) -> None:
        """Start the command, see it through, and leave; called in the forked child, never returns to its caller."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent of ours may have ignored it: then no end is ever told
        self._open_files()
        failure = self._spawn()
        for fd in self.streams.to_close:
            os.close(fd)
        if failure:
            self.tell("failed", errno=failure, error=os.strerror(failure))
            return
        self.tell("spawned", pid=self.pid, pgid=self.pid)
        _adopt_orphans()
        threads = [threading.Thread(target=self._pass_on, args=(relay,), daemon=True) for relay in self.streams.relays]
        for thread in threads:
            thread.start()
        threading.Thread(target=self._look_around, daemon=True).start()
        self._wait()
        self._drain(threads)
        self.tell("drained")
        # What the command left running in the background may still write: it keeps its streams until it ends.
        for thread in threads:
            thread.join()
        self._reap_the_rest()
        self._await_recorder()
        if self.order.guest_dir is not None and self.order.folder is not None:
            gather(self.order.guest_dir, self.order.folder)  # finds nothing when the recorder has done it

    # --- starting -----------------------------------------------------------------------------------------

    def _open_files(self) -> None:
        if self.order.folder is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self.log = os.open(self.order.folder / place.KEEPER, flags, 0o600)
            self.tail = OutputTail(self.order.folder / place.TAIL)
        except OSError:
            pass  # a full disk costs the tail of the output, not the run

    def _spawn(self) -> int:
        """Fork and exec; returns 0 or the errno that says why the command could not be started."""
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.order, self.streams, told)
        os.close(told)
        try:
            os.setpgid(self.pid, self.pid)  # by both sides: whoever comes first
        except OSError:
            pass
        answer = os.read(ready, 16)
        os.close(ready)
        if answer:
            os.waitpid(self.pid, 0)
            return int(answer)
        return 0

    # --- while it runs ------------------------------------------------------------------------------------

    def _pass_on(self, relay: Relay) -> None:
        while True:
            try:
                data = os.read(relay.source, 65536)
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                data = b""  # EIO: the other side of a pseudo-terminal is gone
            if not data:
                break
            self.last_output = time.monotonic()
            self.keep(data)
            if not _write_all(relay.target, data):
                break  # nobody reads any more: closing our end lets the command meet that as it would have
        os.close(relay.source)

    def keep(self, data: bytes) -> None:
        if self.tail is not None:
            with self.tail_lock:
                self.tail.write(data)

    def _look_around(self) -> None:
        """Follow files that the command writes itself, and the size of the user's terminal."""
        while not self.ended.wait(_LOOK):
            for relay in self.streams.relays:
                if relay.terminal is not None and streams_module.copy_size(relay.terminal, relay.source):
                    signal_group(self.pid, signal.SIGWINCH)
            for followed in self.streams.followed:
                self._read_on(followed)

    def _read_on(self, followed: Followed) -> None:
        try:
            size = os.fstat(followed.fd).st_size
            if size < followed.offset:
                followed.offset = 0  # truncated and begun anew
            followed.offset = max(followed.offset, size - (256 << 10))
            while followed.offset < size and (data := os.pread(followed.fd, 65536, followed.offset)):
                followed.offset += len(data)
                self.keep(data)
        except OSError:
            pass

    def _wait(self) -> None:
        """Wait for the command; also for strangers who were left to us, so that no zombie stays."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WUNTRACED | os.WCONTINUED)
            except InterruptedError:
                continue
            except ChildProcessError:
                self.tell("exited", exit_code=EXIT_HOLTER_FAILED, signal=None, core=False)  # its end went elsewhere
                return
            if pid != self.pid:
                continue
            if os.WIFSTOPPED(status):
                self.tell("stopped", signal=os.WSTOPSIG(status), keep=False)
            elif os.WIFCONTINUED(status):
                self.tell("continued", keep=False)
            else:
                self.tell("exited", **_ending(status), cpu_s=usage.ru_utime + usage.ru_stime, maxrss=_maxrss(usage))
                return

    def _drain(self, threads: list[threading.Thread]) -> None:
        """Let everything that was written before the end come through."""
        since = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.02)
            # A descendant may hold the streams for days: what counts is that nothing is waiting to be read.
            waiting = _readable_now(
                [r.source for r, t in zip(self.streams.relays, threads, strict=True) if t.is_alive()]
            )
            if not waiting and time.monotonic() - max(since, self.last_output) > _QUIET:
                break
        self.ended.set()
        for followed in self.streams.followed:
            self._read_on(followed)

    def _reap_the_rest(self) -> None:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return
            except OSError:
                return

    # --- telling ------------------------------------------------------------------------------------------

    def tell(self, kind: str, /, *, keep: bool = True, **fields: Any) -> None:
        """To the record first, since it lasts, then to the recorder, if it is still there."""
        line = {"k": kind, "t": time.time(), "m": time.monotonic(), **fields}
        data = lines.dump(line)
        if keep and kind != "drained" and self.log is not None:
            try:
                os.write(self.log, data)
            except OSError:
                pass
        try:
            self.link.sendall(data)
        except OSError:
            pass

    def _await_recorder(self) -> None:
        """Until the recorder has closed its end: it is done, or it is dead."""
        try:
            while self.link.recv(4096):
                pass
        except OSError:
            pass


def start(order: Order, streams: Streams) -> tuple[int, socket.socket]:
    """Fork the keeper; returns its pid and the recorder's end of the link."""
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:  # either may have been closed before we came
            stream.flush()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            ours.close()
            os.setpgid(0, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            Keeper(order, streams, theirs).run()
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    theirs.close()
    for fd in streams.to_close:
        os.close(fd)
    for relay in streams.relays:
        os.close(relay.source)
    for followed in streams.followed:
        os.close(followed.fd)
    return pid, ours


def _become(order: Order, streams: Streams, told: int) -> None:
    """In the new process: take the streams and turn into the command."""
    try:
        os.setpgid(0, 0)
        if order.take_terminal:
            os.tcsetpgrp(0, os.getpid())  # SIGTTOU is still ignored here
        for number in range(1, signal.NSIG):
            if number in (signal.SIGKILL, signal.SIGSTOP) or number in _INHERITED_IGNORED:
                continue
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, order.signal_mask)
        if streams.stdout != 1:
            os.dup2(streams.stdout, 1)
        if streams.stderr != 2:
            os.dup2(streams.stderr, 2)
        _exec(list(order.command), dict(order.environ))
    except OSError as error:
        os.write(told, str(error.errno or errno.ENOEXEC).encode())
    except BaseException:
        os.write(told, str(errno.ENOEXEC).encode())
    finally:
        os._exit(127)


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


def _ending(status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"exit_code": 128 + number, "signal": signal_name(number), "core": os.WCOREDUMP(status)}
    return {"exit_code": os.WEXITSTATUS(status), "signal": None, "core": False}


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _maxrss(usage: Any) -> int:
    return int(usage.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def _write_all(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            if error.errno == errno.EAGAIN:  # the user's own stream may be non-blocking
                select.select([], [fd], [], 1.0)
            elif error.errno != errno.EINTR:
                return False
    return True


def _readable_now(fds: list[int]) -> bool:
    try:
        return bool(select.select(fds, [], [], 0)[0])
    except (OSError, ValueError):
        return False


def _adopt_orphans() -> None:
    """Have the kernel hand us processes whose parent died (Linux), so that they are seen and reaped."""
    if sys.platform.startswith("linux"):
        import ctypes

        try:
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        except (OSError, AttributeError):
            pass
