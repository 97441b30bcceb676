"""Processes that wait for each other through pipes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.circle_linux import circle_of
from holter.probes.stuck_linux import CALLS, waiting_in

pytestmark = [
    pytest.mark.skipif(os.uname().machine not in CALLS, reason="system calls of this machine"),
    pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="the kernel shows no system calls"),
]

# A child that copies its input to its output, which nobody reads.
FILLED = """
import subprocess, sys
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.pid, flush=True)
child.stdin.write(b"x" * 1_000_000)
"""
# A child that says more than a pipe holds, and a parent that waits for its end before it reads.
UNREAD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "print('x' * 1_000_000)"], stdout=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""
# The same, with a thread that reads: slowly, but it will go on.
READ = """
import subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-S", "-c", "print('x' * 1_000_000)"], stdout=subprocess.PIPE)
threading.Thread(target=lambda: (time.sleep(600), child.stdout.read()), daemon=True).start()
print(child.pid, flush=True)
child.wait()
"""
# A child that will write, later.
LATER = """
import subprocess, sys
child = subprocess.Popen(["sh", "-c", "sleep 600; echo ready"], stdout=subprocess.PIPE)
print(child.pid, flush=True)
child.stdout.read()
"""


def parents_of(parent, child):
    below = {child: parent.pid}
    for name in Path(f"/proc/{child}/task/{child}/children").read_text().split():
        below[int(name)] = child
    return below


@pytest.mark.parametrize(("code", "calls"), [(FILLED, ["write", "write"]), (UNREAD, ["wait4", "write"])])
def test_both_wait_for_each_other(code, calls, start, until):
    """The kernel says what each of them is in, and who holds the other end."""
    parent = start(code)
    child = int(parent.first_line)
    until(lambda: waiting_in(parent.pid).get("syscall") == calls[0] and waiting_in(child).get("syscall") == calls[1])

    found = circle_of(parent.pid, parents_of(parent, child))

    assert [(one["pid"], one["syscall"]) for one in found] == [(parent.pid, calls[0]), (child, calls[1])]


@pytest.mark.parametrize("code", [READ, LATER])
def test_one_who_can_go_on_by_itself_is_no_circle(code, start, until):
    """A thread that sleeps before it reads, a child that sleeps before it writes."""
    parent = start(code)
    child = int(parent.first_line)
    until(lambda: waiting_in(parent.pid).get("syscall") in ("wait4", "read"))
    until(lambda: waiting_in(child).get("syscall") in ("write", "wait4"))

    assert circle_of(parent.pid, parents_of(parent, child)) == []


def test_a_pipe_that_someone_outside_may_read_is_no_circle(start, until):
    """Its own output is full: this test holds the other end, and may read at any time."""
    writer = start("import sys; print(1, flush=True); sys.stdout.write('x' * 1_000_000)")
    until(lambda: waiting_in(writer.pid).get("syscall") == "write")

    assert circle_of(writer.pid, {}) == []
