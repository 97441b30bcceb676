"""Passes the command's output on to the user's own stream, byte by byte as it came, and keeps a copy of it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import termios
from collections.abc import Callable

from holter.recorder.launch.streams import Relay, writable

_AT_ONCE = 65536


def pass_on(relay: Relay, keep: Callable[[bytes], None]) -> None:
    """Until the command's end of it is closed, or nobody takes what comes."""
    while _peeked(relay, keep) or _copied(relay, keep):
        pass


def _peeked(relay: Relay, keep: Callable[[bytes], None]) -> bool:
    """Pass on what comes out of a pipe until its end; False there, or where the kernel can't do it.

    We look at a second copy, and what we look at stays in the command's pipe. If we are killed, whoever takes over
    finds it there: no byte is lost. Into a pipe whose reader keeps up it is moved within the kernel: none is doubled.
    """
    if _tee is None or relay.tried:
        return False
    relay.tried = True
    aside = copies = -1
    try:
        aside, copies = os.pipe()
        is_pipe = stat.S_ISFIFO(os.fstat(relay.target).st_mode)
        wide = not is_pipe
        while (found := _tee(relay.source, copies, _AT_ONCE, 0)) > 0:
            data = os.read(aside, found)
            keep(data)  # first: a reader that takes nothing is not to cost the last words
            moved = 0
            if is_pipe and not _unread(relay.target):
                moved = os.splice(relay.source, relay.target, found)
            elif not wide:
                _widen(relay.target)
                wide = True
            if moved < found:
                if not _write_all(relay.target, data[moved:]):
                    raise BrokenPipeError
                os.read(relay.source, found - moved)
    except BrokenPipeError:
        relay.broken = True
    except OSError:
        pass  # nothing was taken out: what follows reads and writes
    finally:
        for fd in (aside, copies):
            if fd >= 0:
                os.close(fd)
    return False


def _unread(pipe: int) -> bool:
    return bool(int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder))


def _widen(pipe: int) -> None:
    """What was moved into it took a page for each line: give its reader the room back that it had without us."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 2 * fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ))
    except OSError:
        pass


def _copied(relay: Relay, keep: Callable[[bytes], None]) -> bool:
    """Read what is waiting and write it on; False at the end, or when nobody takes it any more."""
    if relay.broken:
        return False
    try:
        data = os.read(relay.source, _AT_ONCE)
    except OSError as error:  # EIO: the other side of a pseudo-terminal is gone
        return error.errno == errno.EINTR
    if not data:
        return False
    keep(data)
    return _write_all(relay.target, data)  # when nobody reads, closing our end lets the command meet that


def _write_all(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            if error.errno == errno.EAGAIN:  # the user's own stream may be non-blocking
                writable(fd, 1.0)
            elif error.errno != errno.EINTR:
                return False
    return True


def _tee_of_libc() -> Callable[..., int] | None:
    """tee(2): a second copy of what waits in a pipe, which stays there (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        tee: Callable[..., int] = ctypes.CDLL(None, use_errno=True).tee
        return tee
    except (OSError, AttributeError):
        return None


_tee = _tee_of_libc()
