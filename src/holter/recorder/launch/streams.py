"""The command's three streams: what each was before us, and what the command gets in its place.

stdin is always the user's own. A terminal is replaced by a pseudo-terminal, a pipe by a pipe, two streams that were one
stay one, so that the command sees what it would have seen; a regular file is handed on as it is and read from beside.
What was closed stays closed, and what can refuse a write in a way of its own (a full device, a terminal that has hung
up) is handed on as it is.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import stat
import struct
import termios
import tty
from dataclasses import dataclass, field

_closed: set[int] = set()  # of the three: those that were closed when we came


def hold_closed() -> None:
    """Put /dev/null in the place of a stream that was closed: else the next file of ours would be taken for it."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest number that is free is this one
            _closed.add(fd)


def closed() -> list[int]:
    """Those of the three that the command is to find closed."""
    return sorted(_closed)


def kind_of(fd: int) -> str:
    """`tty`, `pipe`, `file`, `null`, `other` or `closed`."""
    if fd in _closed:
        return "closed"
    try:
        mode = os.fstat(fd)
    except OSError:
        return "closed"
    if os.isatty(fd):
        return "tty"
    if stat.S_ISFIFO(mode.st_mode):
        return "pipe"
    if stat.S_ISREG(mode.st_mode):
        return "file"
    if stat.S_ISCHR(mode.st_mode) and os.path.exists(os.devnull) and os.stat(os.devnull).st_rdev == mode.st_rdev:
        return "null"
    return "other"


@dataclass
class Relay:
    """Bytes that go through us: read here, written to the user's own stream there."""

    source: int
    target: int
    terminal: int | None = None  # the user's terminal, whose size the command's follows
    tried: bool = False  # whether the kernel can show what waits in it
    broken: bool = False  # nobody takes them any more


@dataclass
class Followed:
    """A regular file that the command writes itself; we only read what it appended."""

    fd: int
    offset: int


@dataclass
class Streams:
    """What the command's process is given, and what the keeper has to do for it."""

    stdout: int
    stderr: int
    relays: list[Relay] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    to_close: list[int] = field(default_factory=list)  # the command's ends, closed here once it runs
    kinds: dict[str, str] = field(default_factory=dict)


def prepare() -> Streams:
    """Make the ends that the command gets in place of ours."""
    streams = Streams(1, 2)
    streams.kinds = {"stdin": kind_of(0), "stdout": kind_of(1), "stderr": kind_of(2)}
    streams.stdout = _one(streams, 1, streams.kinds["stdout"])
    if streams.kinds["stderr"] == streams.kinds["stdout"] and _same(1, 2):
        streams.stderr = streams.stdout if streams.stdout != 1 else 2
    else:
        streams.stderr = _one(streams, 2, streams.kinds["stderr"])
    return streams


def _same(a: int, b: int) -> bool:
    try:
        first, second = os.fstat(a), os.fstat(b)
    except OSError:
        return False
    return (first.st_dev, first.st_ino, first.st_rdev) == (second.st_dev, second.st_ino, second.st_rdev)


def _one(streams: Streams, fd: int, kind: str) -> int:
    if kind == "closed":
        return fd
    if kind == "file":
        _follow(streams, fd)
        return fd
    if kind == "other" and stat.S_ISCHR(os.fstat(fd).st_mode):
        return fd  # such as /dev/full, or a terminal that has hung up: its answer to a write is the command's to get
    try:
        source, given = _pseudo_terminal(fd) if kind == "tty" else os.pipe()
    except OSError:
        return fd  # no descriptor, no pseudo-terminal to be had: the output is not kept, and flows all the same
    streams.relays.append(Relay(source, fd, terminal=fd if kind == "tty" else None))
    streams.to_close.append(given)
    return given


def _follow(streams: Streams, fd: int) -> None:
    """Open the file a second time to read it; one that we may write but not read is left alone."""
    try:
        reading = os.open(f"/dev/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(reading).st_ino != os.fstat(fd).st_ino or not _readable(reading):
            os.close(reading)
            return
    except OSError:
        return
    streams.followed.append(Followed(reading, os.fstat(fd).st_size))


def _readable(fd: int) -> bool:
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY


def _pseudo_terminal(real: int) -> tuple[int, int]:
    """A terminal that passes bytes on untouched: the user's own does the processing, once."""
    ours, given = pty.openpty()
    try:
        termios.tcsetattr(given, termios.TCSANOW, termios.tcgetattr(real))
        tty.setraw(given, termios.TCSANOW)
    except termios.error:
        pass
    copy_size(real, ours)
    return ours, given


def size_of(terminal: int) -> bytes:
    return fcntl.ioctl(terminal, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))


def copy_size(real: int, ours: int) -> bool:
    """Give the command's terminal the size of the user's; True when it changed."""
    try:
        wanted = size_of(real)
        if size_of(ours) == wanted:
            return False
        fcntl.ioctl(ours, termios.TIOCSWINSZ, wanted)
        return True
    except OSError:
        return False


def readable(fds: list[int], seconds: float) -> list[int]:
    """Those that can be read now, or within that time; unlike `select` for numbers of any size."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _what in poll.poll(seconds * 1000)]


def writable(fd: int, seconds: float) -> bool:
    """Wait until something can be written, or that time has passed; True where it can."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))
