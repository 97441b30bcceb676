"""Where a process waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.stuck_linux import CALLS, parse_syscall, waiting_in

known_machine = pytest.mark.skipif(os.uname().machine not in CALLS, reason="system calls of this machine")
readable = pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="the kernel shows no system calls")


@known_machine
@readable
def test_a_read_from_a_pipe_names_the_pipe(start, until):
    """A process that waits for input is in `read`, and the pipe is named."""
    process = start("import os; print(1, flush=True); os.read(0, 1)")

    found = until(lambda: (w := waiting_in(process.pid)).get("syscall") == "read" and w)

    assert found["state"] == "S"
    assert os.readlink(f"/proc/{process.pid}/fd/0") == found["path"]
    assert found["path"].startswith("pipe:")


@known_machine
@readable
def test_a_lock_is_a_futex(start, until):
    """A thread that waits for a lock is in `futex`, and each thread has its own line, the main one first."""
    process = start(
        "import threading, time\n"
        "lock = threading.Lock(); lock.acquire()\n"
        "t = threading.Thread(target=lock.acquire, daemon=True); t.start()\n"
        "print(t.native_id, flush=True); time.sleep(600)"
    )

    found = until(
        lambda: (w := waiting_in(process.pid)).get("syscall") in ("clock_nanosleep", "select", "pselect6") and w
    )

    assert [process.pid, int(process.first_line)] == [thread["tid"] for thread in found["threads"]]
    until(lambda: waiting_in(process.pid)["threads"][1].get("syscall") == "futex")
    assert found["thread_count"] == 2


def test_a_stopped_process(start, until):
    """A stopped process is in state T."""
    process = start("print(1, flush=True); import time; time.sleep(600)")
    os.kill(process.pid, signal.SIGSTOP)

    assert until(lambda: waiting_in(process.pid)["state"] == "T")


def test_uninterruptible_sleep(start, until):
    """A process that waits in the kernel where no signal reaches it is in state D."""
    # The parent of a vfork sleeps so until its child ends or becomes another program.
    process = start(
        "import ctypes, os, time\n"
        "print(1, flush=True)\n"
        "if ctypes.PyDLL(None).vfork() == 0:\n"
        "    time.sleep(600); os._exit(0)\n"
    )

    found = until(lambda: (w := waiting_in(process.pid)).get("state") == "D" and w)

    assert process.pid == found["pid"]


def test_a_process_that_is_gone():
    """Nobody waits nowhere."""
    process = subprocess.Popen(["true"])
    process.wait()

    assert waiting_in(process.pid) == {}


def test_system_calls_by_machine():
    """The same number is another call on another machine, and an unknown one keeps its number."""
    raw = b"63 0x7 0x7f 0x1000 0x0 0x0 0x0 0x7ffd 0x7f1c\n"

    assert parse_syscall(raw, "aarch64") == {"nr": 63, "syscall": "read", "fd": 7}
    assert parse_syscall(raw, "x86_64") == {"nr": 63}
    assert parse_syscall(raw, "riscv64") == {"nr": 63}


@pytest.mark.parametrize("raw", [b"running\n", b"-1 0x7ffd 0x7f1c\n", b""])
def test_not_in_a_call(raw):
    """A thread that runs, or that waits for a page, is in no call."""
    assert parse_syscall(raw, "x86_64") == {}


def test_each_piece_by_itself(tmp_path):
    """Where only stat may be read, the state is still told."""
    (tmp_path / "7/task/7").mkdir(parents=True)
    (tmp_path / "7/task/7/stat").write_text("7 (a) b) D 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 1 1 0 0 0\n")
    (tmp_path / "7/task/7/syscall").write_text("nonsense 1\n")

    found = waiting_in(7, str(tmp_path))

    assert found["threads"][0] == {"tid": 7, "name": "a) b", "state": "D"}
    assert found["state"] == "D"
