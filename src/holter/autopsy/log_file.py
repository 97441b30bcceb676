"""A log of any size, read at its ends and at its marks only: the beginning, the last megabytes, and what lies before
them around the words of errors. What a terminal would act on is taken out.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holter.diagnosis.ending.tracebacks import plain
from holter.errors import UsageError

_HEAD_BYTES = 64 << 10
_TAIL_BYTES = 1 << 20
_SEARCHED_BYTES = 32 << 20  # before the tail, where an error may lie that a flood of others followed
_CHUNK_BYTES = 4 << 20
_AROUND_BYTES = 3000  # of a mark
_MAX_MARKS = 12
_MAX_LINE_LETTERS = 4000
_MARKS = (
    b"Traceback (most recent call last)", b"Fatal Python error", b"ut of memory", b"No space left", b"CUDA error",
    b"oo many open files", b"DUE TO TIME LIMIT", b"NCCL error", b"Segmentation fault", b"Bus error", b"oom_kill",
    b"loss: nan", b"loss=nan", b"loss nan",
)  # fmt: skip
# Where people's shells and schedulers put what a training prints.
_USUAL_NAMES = ("nohup.out", "slurm-*.out", "*.log", "*.out", "*.err")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")


@dataclass(frozen=True)
class Log:
    """What was read of a log."""

    path: str
    text: str  # the end, behind the marks that were found before it
    head: str = ""
    size: int = 0
    left_out: int = 0  # bytes that were not read
    written: float | None = None  # when it was last written to, in wall-clock seconds
    writers: tuple[int, ...] = ()  # processes that have it open for writing

    @property
    def name(self) -> str:
        return "the log" if self.path == "-" else os.path.basename(self.path)


def newest_log(folder: Path) -> Path | None:
    """The log that was written last, by the usual names."""
    found = {path for name in _USUAL_NAMES for path in folder.glob(name) if path.is_file()}
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def read_log(path: str) -> Log:
    """Read a log; `-` is stdin, such as `kubectl logs POD | holter autopsy -`."""
    if path == "-":
        return _read_stream(sys.stdin.fileno())
    try:
        # Not to be held up by a pipe that nobody writes to.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}", "Name the file that holds the output") from None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{path} is no ordinary file", "Name the file that holds the output, or - for stdin")
        return _read_file(path, fd, about)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}", "Name the file that holds the output") from None
    finally:
        os.close(fd)


def _read_file(path: str, fd: int, about: os.stat_result) -> Log:
    size = about.st_size
    tail_at = max(0, size - _TAIL_BYTES)
    tail = _read_at(fd, tail_at, size - tail_at)
    head = _read_at(fd, 0, min(_HEAD_BYTES, tail_at))
    searched_from = max(len(head), tail_at - _SEARCHED_BYTES)
    marks = deque(_marked(fd, searched_from, tail_at), _MAX_MARKS)
    text = b"\n".join([*marks, tail])
    return Log(
        path, _readable(text), _readable(head), size, max(0, searched_from - len(head)), about.st_mtime,
        tuple(_writers(about)),
    )  # fmt: skip


def _read_at(fd: int, at: int, length: int) -> bytes:
    parts = []
    while length > 0 and (part := os.pread(fd, min(length, _CHUNK_BYTES), at)):
        parts.append(part)
        at, length = at + len(part), length - len(part)
    return b"".join(parts)


def _marked(fd: int, start: int, end: int) -> Iterator[bytes]:
    """What stands around each mark; marks near each other come as one."""
    done = start
    for at in range(start, end, _CHUNK_BYTES):
        chunk = _read_at(fd, at, min(_CHUNK_BYTES, end - at))
        for mark in sorted(_places_of_marks(chunk)):
            if at + mark >= done:
                begin = max(done, at + mark - 200)
                done = min(end, at + mark + _AROUND_BYTES)
                yield _read_at(fd, begin, done - begin)


def _places_of_marks(chunk: bytes) -> Iterator[int]:
    """Looked for one by one, which is ten times as fast as one pattern of them all."""
    for mark in _MARKS:
        place = chunk.find(mark)
        while place >= 0:
            yield place
            place = chunk.find(mark, place + _AROUND_BYTES)


def _read_stream(fd: int) -> Log:
    """The head and the tail of what comes; the rest is let go by."""
    head, tail, size = b"", b"", 0
    while part := os.read(fd, 1 << 20):
        size += len(part)
        head += part[: _HEAD_BYTES - len(head)] if len(head) < _HEAD_BYTES else b""
        tail = (tail + part)[-_TAIL_BYTES:]
    head = head if size > _TAIL_BYTES else b""
    return Log("-", _readable(tail), _readable(head), size, max(0, size - _TAIL_BYTES - len(head)))


def _readable(raw: bytes) -> str:
    """Text in lines of bearable length; of a progress bar each state is a line."""
    text = plain(raw.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", text)
    return "\n".join(_cut(line) for line in text.split("\n"))


def _cut(line: str) -> str:
    half = _MAX_LINE_LETTERS // 2
    return line if len(line) <= _MAX_LINE_LETTERS else f"{line[:half]} … {line[-half:]}"


def _writers(about: os.stat_result) -> Iterator[int]:
    """Processes that can still write to it, where /proc tells: then the run may not be over."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return
    for pid in pids:
        if pid != os.getpid() and _has_open_for_writing(pid, about):
            yield pid


def _has_open_for_writing(pid: int, about: os.stat_result) -> bool:
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            found = os.stat(f"/proc/{pid}/fd/{fd}")
            if (found.st_dev, found.st_ino) == (about.st_dev, about.st_ino):
                with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
                    flags = re.search(r"^flags:\s*([0-7]+)", file.read(2000), re.M)
                if flags and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except OSError:
        pass  # gone, or another user's
    return False
