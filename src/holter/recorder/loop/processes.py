"""Small questions about one process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path


def lives(pid: int) -> bool:
    """True while the process exists and is more than a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    stat = _stat(pid)
    if stat is None:
        return not sys.platform.startswith("linux")
    return stat[0] not in ("Z", "X")


def parent_of(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[1]) if stat else 0


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return raw[raw.rindex(b")") + 2 :].decode("ascii", "replace").split()


def command_of(pid: int) -> list[str]:
    if sys.platform.startswith("linux"):
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return [word.decode("utf-8", "replace")[:2000] for word in raw.rstrip(b"\0").split(b"\0")]
    import psutil

    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def executable_of(pid: int) -> str:
    """The name of the program file, or nothing where it can't be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def is_python(pid: int, command: list[str]) -> bool:
    name = executable_of(pid) or (os.path.basename(command[0]) if command else "")
    return name.startswith(("python", "pypy"))


def signal_group(pgid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pgid, number)
    except OSError:
        pass


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def cpu_of(pid: int) -> float:
    """Seconds that all threads of a process have run together; 0 where that can't be seen."""
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") if stat else 0.0


def thread_cpu(pid: int, tid: int) -> float | None:
    """Seconds that a thread has run on a CPU; None where that can't be seen."""
    try:
        return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def any_runs(pid: int) -> bool:
    """True when a thread of a process is running or wants to; False where that can't be seen."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for tid in tids:
        try:
            raw = Path(f"/proc/{pid}/task/{tid}/stat").read_bytes()
        except OSError:
            continue
        if raw[raw.rindex(b")") + 2 :][:1] == b"R":
            return True
    return False
