"""The keeper: a small process between the recorder and the command that outlives the recorder.

It is the command's parent, passes its output on, keeps the last of it, and writes down how it ended. When the
recorder is killed the training goes on: nothing that the command holds leads to the recorder. When the keeper itself
is killed the recorder takes its place (`take_over`): it holds the same descriptors, and becomes the command's parent.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from holter.errors import EXIT_HOLTER_FAILED
from holter.record import lines, place
from holter.record.gather import gather
from holter.record.tail import OutputTail
from holter.recorder.launch.become import Order, adopt_orphans, become
from holter.recorder.launch.relay import pass_on
from holter.recorder.launch.streams import Followed, Streams, copy_size, readable
from holter.recorder.loop.processes import lives, signal_group

_QUIET = 0.3  # seconds without output after the end, when something still holds the streams open
_LOOK = 0.2


class Keeper:
    def __init__(self, order: Order, streams: Streams, link: socket.socket, go: int = -1) -> None:
        self.order = order
        self.streams = streams
        self.link = link
        self.go = go  # on this the command is told by the recorder to begin
        self.recorder = os.getppid()  # 0 once we run inside it
        self.tail: OutputTail | None = None
        self.tail_lock = threading.Lock()
        self.pid = 0
        self.ended = threading.Event()
        self.last_output = 0.0
        self.log: int | None = None
        self.ending: dict[str, Any] | None = None  # as it was seen before it was taken note of

    def run(self) -> None:
        """Start the command, see it through, and leave; called in the forked child, never returns to its caller."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        self._open_files()
        try:
            ready = self._fork()
        except OSError as error:
            self.emit("failed", errno=error.errno, error=os.strerror(error.errno or 0))
            return
        threads = self._begin()
        # Told before the command begins: if we are killed from here on, the recorder knows whose end to wait for.
        self.emit("spawned", pid=self.pid, relayed=threads is not None)
        for fd in self.streams.to_close:
            os.close(fd)
        failure = self._failure(ready)
        if failure:
            self.emit("failed", errno=failure, error=os.strerror(failure))
            return
        adopt_orphans()
        self._wait()
        self._drain(threads or [])
        self.emit("drained")
        # What the command left running in the background may still write: it keeps its streams until it ends.
        for thread in threads or []:
            thread.join()
        self._reap_the_rest()
        self._await_recorder()
        if self.order.agent_dir is not None and self.order.folder is not None:
            gather(self.order.agent_dir, self.order.folder)  # finds nothing when the recorder has done it

    def take_over(self, pid: int, *, ended: bool, ending: dict[str, Any] | None) -> None:
        """Go on in the place of a keeper that was killed; in a thread of the recorder's, which is now the parent."""
        self.pid = pid
        self.recorder = 0
        self.ending = ending
        self._open_files()
        threads = self._begin() or []
        if not ended:
            self._wait(pid)
        self._drain(threads)
        self.emit("drained")

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

    def _fork(self) -> int:
        """Fork what becomes the command; it waits for the recorder's word. Returns where its failure is told."""
        ready, failure_fd = os.pipe()
        # What we ignore is meant for the command: what is sent to it before it begins waits until it can get it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.pid = os.fork()
        if self.pid == 0:
            self.link.close()  # else the recorder would not learn of our death while the command waits for its word
            become(self.order, self.streams, self.go, failure_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.close(failure_fd)
        os.close(self.go)
        try:
            os.setpgid(self.pid, self.pid)  # by both sides: whoever comes first
        except OSError:
            pass
        return ready

    def _begin(self) -> list[threading.Thread] | None:
        """Start to pass output on; None where no thread can be had, and the command has to keep its own streams."""
        threads = [
            threading.Thread(target=self._pass_on, args=(n,), daemon=True) for n in range(len(self.streams.relays))
        ]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError:
            return None
        try:
            threading.Thread(target=self._look_around, daemon=True).start()
        except RuntimeError:
            pass  # the size of the terminal is not followed, and a file is read when all is over
        return threads

    def _failure(self, ready: int) -> int:
        """0 once the command runs, or the errno that says why it could not be started."""
        answer = os.read(ready, 16)
        os.close(ready)
        if answer:
            os.waitpid(self.pid, 0)
            return int(answer)
        return 0

    # --- while it runs ------------------------------------------------------------------------------------

    def _pass_on(self, number: int) -> None:
        relay = self.streams.relays[number]
        pass_on(relay, self.keep)
        if self.recorder:
            os.close(relay.source)
        self.emit("passed", keep=False, relay=number)  # the recorder closes its own, which a successor shares with it

    def keep(self, data: bytes) -> None:
        self.last_output = time.monotonic()
        with self.tail_lock:
            if self.tail is None:
                return
            try:
                self.tail.write(data)
            except OSError:  # the disk is full, or the file is gone
                self.tail = None

    def _look_around(self) -> None:
        """Follow files that the command writes itself, and the size of the user's terminal."""
        while not self.ended.wait(_LOOK):
            for relay in self.streams.relays:
                if relay.terminal is not None and copy_size(relay.terminal, relay.source):
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

    def _wait(self, whom: int = -1) -> None:
        """Wait for the command; a keeper also for strangers who were left to it, so that no zombie stays."""
        while True:
            try:
                pid, status, usage = os.wait4(self._emit_ending(whom), os.WUNTRACED | os.WCONTINUED)
            except InterruptedError:
                continue
            except ChildProcessError:  # its end was told to someone else
                while lives(self.pid):
                    time.sleep(_LOOK)
                unknown = {"exit_code": EXIT_HOLTER_FAILED, "signal": None, "core": False}
                self.emit("exited", **(self.ending or unknown))
                return
            if pid != self.pid:
                continue
            if os.WIFSTOPPED(status):
                self.emit("stopped", signal=os.WSTOPSIG(status), keep=False)
            elif os.WIFCONTINUED(status):
                self._wake_recorder()
                self.emit("continued", keep=False)
            else:
                self.emit("exited", **_ending(status), cpu_s=usage.ru_utime + usage.ru_stime, maxrss=_maxrss(usage))
                return

    def _emit_ending(self, whom: int) -> int:
        """Wait, and tell of the command's end while it can still be asked for: after that only we know of it."""
        if not hasattr(os, "waitid"):
            return whom
        which = (os.P_ALL, 0) if whom < 0 else (os.P_PID, whom)
        seen = os.waitid(*which, os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOWAIT)
        if seen is None:
            return whom
        if seen.si_pid == self.pid and seen.si_code == os.CLD_EXITED:
            self.emit("ending", keep=False, exit_code=seen.si_status, signal=None, core=False)
        elif seen.si_pid == self.pid and seen.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            killed = {"exit_code": 128 + seen.si_status, "signal": signal_name(seen.si_status)}
            self.emit("ending", keep=False, **killed, core=seen.si_code == os.CLD_DUMPED)
        return seen.si_pid

    def _wake_recorder(self) -> None:
        """It stops with the command; whoever has the command go on knows nothing of it."""
        if self.recorder == os.getppid() and self.recorder > 1:
            try:
                os.kill(self.recorder, signal.SIGCONT)
            except OSError:
                pass

    def _drain(self, threads: list[threading.Thread]) -> None:
        """Let everything that was written before the end come through."""
        since = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.02)
            # A descendant may hold the streams for days: what counts is that nothing is waiting to be read.
            open_ = [r.source for r, t in zip(self.streams.relays, threads, strict=False) if t.is_alive()]
            waiting = bool(readable(open_, 0.0))
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

    def emit(self, kind: str, /, *, keep: bool = True, **fields: Any) -> None:
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


@dataclass
class Started:
    """A keeper and a command that waits for our word, as the recorder holds them."""

    order: Order
    streams: Streams
    pid: int
    link: socket.socket
    go: int
    heard: bytes = b""  # what the keeper has told already

    def begin(self) -> None:
        """Let the command begin, with streams of ours where somebody reads them; OSError when it can't."""
        while b"\n" not in self.heard:
            piece = self.link.recv(4096)
            if not piece:
                raise OSError(errno.ECHILD, "the process that starts the command was killed")
            self.heard += piece
        answer = json.loads(self.heard.partition(b"\n")[0])
        if answer["k"] == "failed":
            raise OSError(answer["errno"], answer["error"])
        if not answer["relayed"]:
            self.close_sources()
        try:
            os.write(self.go, b"r" if answer["relayed"] else b"p")
        except BrokenPipeError:
            pass  # it was killed while it waited, and the keeper tells
        os.close(self.go)
        for fd in self.streams.to_close:
            os.close(fd)
        self.streams.to_close = []

    def abandon(self) -> None:
        """The command has not begun, and with this closed it never does."""
        os.close(self.go)
        self.link.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass

    def take_over(self, pid: int, *, ended: bool, ending: dict[str, Any] | None) -> socket.socket:
        """The keeper was killed: do its work in here. Returns the new link; RuntimeError where no thread can be had."""
        try:
            os.waitpid(self.pid, 0)  # only then has the command become our own child
        except ChildProcessError:
            pass
        ours, theirs = socket.socketpair()
        successor = Keeper(self.order, self.streams, theirs)
        threading.Thread(target=lambda: successor.take_over(pid, ended=ended, ending=ending), daemon=True).start()
        self.link.close()
        self.link = ours
        return ours

    def passed_on(self, number: int) -> None:
        """The keeper has closed this one: our own must not keep a pipe open that nobody reads."""
        relay = self.streams.relays[number]
        if relay.source >= 0:
            os.close(relay.source)
            relay.source = -1

    def close_sources(self) -> None:
        for number in range(len(self.streams.relays)):
            self.passed_on(number)

    def release(self) -> None:
        """Let the keeper go; it stays only while something that the command left behind still writes."""
        self.link.close()
        self.close_sources()
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            try:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return
            except ChildProcessError:  # whoever started us ignores the ends of children
                return
            time.sleep(0.002)


def start(order: Order, streams: Streams) -> Started:
    """Fork the keeper and the command; OSError where there is no room for them."""
    adopt_orphans()
    ours, theirs = socket.socketpair()
    wait, go = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:  # either may have been closed before we came
                stream.flush()
        except OSError:
            pass
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            ours.close()
            os.close(go)
            os.setpgid(0, 0)
            Keeper(order, streams, theirs, wait).run()
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    theirs.close()
    os.close(wait)
    return Started(order, streams, pid, ours, go)


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
