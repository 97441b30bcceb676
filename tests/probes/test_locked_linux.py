"""Processes that wait for each other, or for a lock that none releases, against those who may go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.locked_linux import circle_of, is_locked
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


# Two threads that take two locks in opposite order.
CROSSED = """
import threading
a, b, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
def other():
    with a:
        both.wait()
        with b: pass
threading.Thread(target=other, daemon=True).start()
print(1, flush=True)
with b:
    both.wait()
    with a: pass
"""
# The same beside a thread that looks round every ten seconds, as progress bars have one.
WITH_A_HELPER = (
    """
import threading
threading.Thread(target=lambda: threading.Event().wait(3600), daemon=True).start()
"""
    + CROSSED
)
# A lock that was held while the child was forked, and a parent that waits for what the child would send.
FORKED = """
import os, threading
lock = threading.Lock()
out, into = os.pipe()
lock.acquire()
if os.fork() == 0:
    lock.acquire()
    os.write(into, b"x")
lock.release()
print(1, flush=True)
import select
poll = select.poll(); poll.register(out, select.POLLIN)
while not poll.poll(5000): pass
"""
STUCK = {"crossed": CROSSED, "helper": WITH_A_HELPER, "forked": FORKED}

JOINS_A_SLEEPER = """
import threading, time
one = threading.Thread(target=time.sleep, args=(600,)); one.start()
print(1, flush=True)
one.join()
"""
WAITS_A_WHILE = "import threading; print(1, flush=True); threading.Event().wait(600)"
READS_STDIN = "import os; print(1, flush=True); os.read(0, 1)"
LISTENS = """
import socket
one = socket.create_server(("127.0.0.1", 0))
print(1, flush=True)
one.accept()
"""
COMPUTES = """
import threading
def spin():
    while True: pass
one = threading.Thread(target=spin, daemon=True); one.start()
print(1, flush=True)
one.join()
"""
CHILD_SLEEPS = """
import os, time
if os.fork() == 0: time.sleep(600)
print(1, flush=True)
os.wait()
"""
FREE = {
    "joins a sleeper": JOINS_A_SLEEPER,
    "waits a while": WAITS_A_WHILE,
    "reads what another program sends": READS_STDIN,
    "listens": LISTENS,
    "computes": COMPUTES,
    "its child sleeps": CHILD_SLEEPS,
}


def tree_of(pid):
    parents, ahead = {pid: 0}, [pid]
    while ahead:
        one = ahead.pop()
        for name in Path(f"/proc/{one}/task/{one}/children").read_text().split():
            parents[int(name)] = one
            ahead.append(int(name))
    return parents


@pytest.mark.parametrize("name", STUCK)
def test_a_process_that_nothing_can_wake_is_locked(name, start, until):
    """Whatever its locks are called, in its threads or in a child of its own."""
    process = start(STUCK[name])

    assert until(lambda: is_locked(process.pid, tree_of(process.pid)))


@pytest.mark.parametrize("name", FREE)
def test_a_process_that_may_go_on_is_not_locked(name, start, until):
    """One that sleeps, computes, waits for a time, for the network or for a program outside of the run."""
    process = start(FREE[name])
    until(lambda: waiting_in(process.pid).get("syscall") is not None)

    assert is_locked(process.pid, tree_of(process.pid)) is False


def test_a_thread_that_waits_a_while_may_end_the_wait_where_it_is_no_helper(start, until):
    """Only those who know its frames can tell."""
    process = start(WITH_A_HELPER)
    until(lambda: is_locked(process.pid, tree_of(process.pid)))

    assert is_locked(process.pid, tree_of(process.pid), helpers=False) is False
