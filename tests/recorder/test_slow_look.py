"""Looks at slow runs: a few, at uneven moments, with the workers; none at quick ones, none during a hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from holter.recorder.loop.slow_look import MAX_LOOKS, SlowLook
from holter.recorder.stacks import take
from holter.recorder.stacks.answers import Answers

MAIN = """Stack (most recent call first):
  File "/home/u/data.py", line 8 in __getitem__
  File "/home/u/train.py", line 30 in <module>

"""


class Ward:
    """A trainer and its workers, whose steps are told by the test and who answer at once."""

    def __init__(self, folder, workers=()):
        state = {"phase": "data", "step": 12}
        self.agents = SimpleNamespace(
            armed={7, *workers},
            rings={7: SimpleNamespace(view=SimpleNamespace(state=lambda: state))},
            role=lambda pid: "trainer" if pid == 7 else "worker",
        )
        self.workers = workers
        self.asked: list[int] = []
        self.when: list[float] = []
        self.events: list[dict] = []
        self.look = SlowLook(self.agents, folder, self.event, self.ask)
        self.now, self.step = 100.0, 0

    def ask(self, _pid, path, tid):
        self.asked.append(tid)
        if tid == 7:
            self.when.append(self.now)
        before = path.stat().st_size if path.exists() else 0
        with open(path, "a") as file:
            file.write(MAIN)
        return before

    def event(self, kind, **fields):
        self.events.append({"k": kind, **fields})

    def goes_on(self, seconds, per_step, data=0.0, may_ask=True):
        """Let time pass in glances of 50 ms, with a tick each second."""
        rows = [{"pid": 7, "ppid": 1}, *({"pid": pid, "ppid": 7} for pid in self.workers)]
        for n in range(int(seconds * 20)):
            self.now += 0.05
            if n % 20 == 19:
                steps = max(1, round(1 / per_step)) if per_step < 1 or self.step == 0 else 0
                lines = []
                if steps:
                    self.step += steps
                    line = {"k": "steps", "m": self.now, "pid": 7, "n": steps, "sum": 1.0, "last": self.step}
                    lines = [line | {"data": data, "forward": 1.0 - data}]
                self.look.ticked(self.now, lines, {"processes": {"list": rows}})
            self.look.glance(self.now, may_ask=may_ask)


def test_a_slow_run_is_looked_at_often_at_first_and_then_rarely(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(30, per_step=0.2)
    at_first = len(ward.asked)
    ward.goes_on(30, per_step=0.2)

    assert 14 <= at_first <= 18
    assert len(ward.asked) - at_first <= 5
    gaps = {round(b - a, 2) for a, b in zip(ward.when, ward.when[1:], strict=False)}
    assert len(gaps) > 5  # uneven, so that no rhythm of the training hides from it


def test_what_is_seen_is_told_with_the_phase_and_the_users_line(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(10, per_step=0.2)
    ward.look.finish()

    event = ward.events[0]
    assert (event["k"], event["reason"], event["pid"], event["phase"]) == ("stacks", "slow", 7, "data")
    assert [thread["frames"][0]["line"] for thread in event["threads"]] == [8]


def test_the_looks_of_a_long_run_are_bounded(tmp_path):
    ward = Ward(tmp_path)
    ward.look._uneven = lambda low, _high: low / 100
    ward.goes_on(1000, per_step=0.2)

    assert ward.look.taken == MAX_LOOKS


def test_quick_steps_that_compute_are_left_alone(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(30, per_step=0.002)

    assert ward.asked == []


def test_quick_steps_that_mostly_wait_are_looked_at(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(10, per_step=0.002, data=0.7)

    assert ward.asked


def test_the_first_seconds_are_left_alone(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(2, per_step=0.2)

    assert ward.asked == []


def test_some_workers_are_asked_with_the_trainer(tmp_path):
    ward = Ward(tmp_path, workers=(20, 21, 22, 23, 24, 25))
    ward.goes_on(8, per_step=0.2)

    looks = ward.asked.count(7)
    assert looks >= 3
    assert len(ward.asked) == 4 * looks


def test_threads_that_make_data_are_asked_one_after_the_other(tmp_path):
    """faulthandler writes for one thread of a process at a time."""
    ward = Ward(tmp_path)
    ward.look.ticked(ward.now, [], {}, [{"k": "data-thread", "pid": 7, "tid": tid} for tid in (71, 72)])
    ward.goes_on(10, per_step=0.2)
    ward.look.finish()

    assert set(ward.asked) == {7, 71, 72}
    asides = [event for event in ward.events if "tid" in event]
    assert {event["tid"] for event in asides} == {71, 72}
    assert not any(thread["main"] for event in asides for thread in event["threads"])
    assert len(ward.events) == len(ward.asked)


def test_nobody_is_asked_while_a_hang_is_looked_into(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(10, per_step=0.2, may_ask=False)

    assert ward.asked == []
    assert ward.look.due(ward.now) > 0.01  # and the recorder does not spin meanwhile


def test_steps_that_become_twice_as_long_are_looked_at_again(tmp_path):
    ward = Ward(tmp_path)
    ward.goes_on(60, per_step=0.1)
    before = len(ward.asked)
    ward.goes_on(60, per_step=0.5)

    assert len(ward.asked) - before >= 8


@contextmanager
def asked_child(folder: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    """A real process with our thread in it, to be spoken with; ended afterwards."""
    script = folder / "script.py"
    script.write_text(text)
    words = [sys.executable, str(script), str(folder)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


SCRIPT = """
import sys, time
from holter.agent.core import stacks
stacks.arm(sys.argv[1])
stacks.start(sys.argv[1])
print("ready", flush=True)
begun, total = time.monotonic(), 0
while time.monotonic() - begun < 600:
    time.sleep(0.05)
    total += 1
    print(total, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_real_process_is_asked_in_a_moment_and_goes_on(tmp_path):
    """Asking takes no waiting, and its sleeps last as long as before."""
    with asked_child(tmp_path, SCRIPT) as child:
        path = tmp_path / f"{child.pid}.stacks"
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(5):
            assert take.ask(child.pid, path) is not None
            child.stdout.readline()
        child.stdout.readline()

        threads = take.written(path, 0)
        assert child.poll() is None
        assert len(threads) == 5
        assert threads[0]["frames"][-1]["function"] == "<module>"


BUSY = """
import sys, threading, time
from holter.agent.core import stacks
stacks.arm(sys.argv[1])
stacks.start(sys.argv[1])


class Odd:
    def __getattr__(self, name):
        return 1

    def __lt__(self, other):
        return False


def work():
    odd = Odd()
    sorted(range(300), key=lambda n: -n)
    list(map(lambda n: n + 1, range(300)))
    max([odd] * 50).anything


def forever():
    while True:
        work()


for _ in range(2):
    threading.Thread(target=forever, daemon=True).start()
print("ready", threading.active_count(), flush=True)
forever()
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_threads_at_work_outlive_two_thousand_questions(tmp_path):
    """Read from within a signal, as faulthandler does, frames that are just being entered crash such a process."""
    with asked_child(tmp_path, BUSY) as child:
        path = tmp_path / f"{child.pid}.stacks"
        assert child.stdout is not None
        assert child.stdout.readline() == "ready 3\n"  # ours is not among them
        for _ in range(2000):
            take.ask(child.pid, path)
            time.sleep(0.0005)
        found, via = take.from_agent(child.pid, tmp_path)  # with questions for one thread still open

        assert child.poll() is None
        assert via == "guest"
        assert sum("forever" in [frame["function"] for frame in thread["frames"]] for thread in found) >= 3
        assert found[-1]["frames"][-1]["function"] == "<module>"


STUCK = """
import ctypes, sys, time
from holter.agent.core import stacks
stacks.arm(sys.argv[1])
stacks.start(sys.argv[1])
print("ready", flush=True)
while True:
    ctypes.PyDLL(None).sleep(6000)  # with the GIL
"""


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="the signal is Linux's")
def test_a_process_whose_gil_is_stuck_in_compiled_code_is_asked_by_a_signal(tmp_path):
    """Our thread can't answer then; no frame moves either, so that faulthandler may read them."""
    with asked_child(tmp_path, STUCK) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        # A process that was given no core meanwhile can't be told from one that is stuck: it is asked again later.
        asked_until, via = time.monotonic() + 60, ""
        while not via and time.monotonic() < asked_until:
            found, via = take.from_agent(child.pid, tmp_path)

        assert via == "faulthandler"
        assert found[-1]["frames"][0]["line"] == 8
        assert child.poll() is None


FULL = """
import ctypes, sys, time
from holter.agent.core import stacks
stacks.arm(sys.argv[1])
stacks.start(sys.argv[1])
print("ready", flush=True)
{block}
"""
KEEPS_IT = "sum(range(10**11))"  # in C, with the GIL
LETS_GO = "while True: pass"


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="the signal is Linux's")
@pytest.mark.parametrize(("block", "signalled"), [(KEEPS_IT, True), (LETS_GO, False)])
def test_a_question_that_compiled_code_leaves_open_is_put_to_faulthandler(tmp_path, monkeypatch, block, signalled):
    """Where the interpreter goes on, our thread has answered long before."""
    insisted, really = [], take.ask_stuck
    monkeypatch.setattr(take, "ask_stuck", lambda pid, path: insisted.append(pid) or really(pid, path))
    with asked_child(tmp_path, FULL.format(block=block)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        answers = Answers(tmp_path)
        begun = time.monotonic()
        assert answers.ask(child.pid, child.pid, begun, {})
        found = []
        while not found and time.monotonic() - begun < 600:
            time.sleep(0.05)
            found = list(answers.read(time.monotonic()))
            answers.insist(time.monotonic())

        assert found[0][1][-1]["frames"][0]["line"] == 7
        assert bool(insisted) is signalled
        assert child.poll() is None


FORKED = """
import os, sys, time
from holter.agent.core import stacks
stacks.arm(sys.argv[1])
stacks.start(sys.argv[1])
child = os.fork()
if not child:
    stacks.born_of_fork(sys.argv[1])
    stacks.start(sys.argv[1])
os.write(1, b"%d\\n" % os.getpid())  # a line at once: two write into one pipe
while True:
    time.sleep(0.01)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_forked_child_answers_for_itself(tmp_path):
    """And its parent still does."""
    with asked_child(tmp_path, FORKED) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        try:
            for pid in pids:
                found, via = take.from_agent(pid, tmp_path)
                assert via == "guest"
                assert found[-1]["frames"][0]["line"] >= 11  # or it has just written, or goes round
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


CLOSED = """
import os, sys, time
from holter.agent.core import stacks
stacks.arm(sys.argv[1])
stacks.start(sys.argv[1])
time.sleep(0.2)
os.closerange(3, 1024)
pipes = [os.pipe() for _ in range(500)]
for _, end in pipes:
    os.write(end, b"mine")
print("ready", flush=True)
sys.stdin.readline()
print(all(os.read(begin, 4) == b"mine" for begin, _ in pipes), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_script_that_closed_our_descriptors_and_uses_their_numbers_is_left_alone(tmp_path):
    """Nothing is read from its files, and nothing is written to them."""
    with asked_child(tmp_path, CLOSED) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(3):
            take.ask(child.pid, tmp_path / f"{child.pid}.stacks")
            time.sleep(0.05)
        out, _ = child.communicate("\n", timeout=600)

    assert (out, child.returncode) == ("True\n", 0)
    assert (tmp_path / f"{child.pid}.stacks").read_text() == ""
