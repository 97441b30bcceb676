"""Real hangs: told with the line, and ended by --on-hang stop. How soon is held in tests/recorder/test_detector.py."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endings.ward import TORCH, Case, as_text, left_of

LOOP = """
import time
import holter

def work():
    time.sleep(0.1)
    holter.step(loss=1.0)


for _ in range(30):
    work()
"""

SCRIPTS = {
    "lock-twice": """
        import threading
        lock = threading.Lock()
        def note(text):
            with lock:  # here
                print(text)
        with lock:
            note("best so far")
        """,
    "empty-queue": """
        import queue
        batches = queue.Queue()
        batches.get()  # here
        """,
    "silent-peer": """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        labels = socket.create_connection(server.getsockname())
        labels.recv(4096)  # here
        """,
    "fifo-without-writer": """
        import os
        os.mkfifo("labels")
        with open("labels") as labels:  # here
            labels.read()
        """,
    "two-threads": """
        import threading
        first, second = threading.Lock(), threading.Lock()
        both = threading.Barrier(2)
        def writer():
            with first:
                both.wait()
                with second:  # there
                    pass
        threading.Thread(target=writer, daemon=True).start()
        with second:
            both.wait()
            with first:  # here
                pass
        """,
    "producer-that-died": """
        import queue
        import threading
        batches = queue.Queue(maxsize=4)
        def produce():
            raise ValueError("bad sample")  # there
            batches.put(1)  # filled
        threading.Thread(target=produce, daemon=True).start()
        batches.get()  # here
        """,
    "forked-lock": """
        import multiprocessing
        import threading
        lock = threading.Lock()
        def child():
            with lock:  # there
                pass
        with lock:
            one = multiprocessing.get_context("fork").Process(target=child)
            one.start()
            one.join()  # here
        """,
    "polling": """
        import os
        while not os.path.exists("never"):
            time.sleep(1)  # here
        """,
    "child-that-stays": """
        import subprocess
        subprocess.Popen(["sleep", "600"]).wait()  # here
        """,
    "full-pipe": """
        import subprocess, sys
        tool = subprocess.Popen([sys.executable, "-c", "print('x' * 200_000)"], stdout=subprocess.PIPE)
        tool.wait()  # here
        """,
    "future": """
        from concurrent.futures import Future
        Future().result()  # here
        """,
}

WORKER = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(0.0125)
        if index == 240:
            download(index)
        return torch.randn(16)


def download(index):
    while True:
        time.sleep(5)  # here


if __name__ == "__main__":
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Images(), batch_size=8, num_workers=2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

RANKS = """
import os
import time
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 30 if dist.get_rank() == 0 else 31
for step in range(steps):
    loss = model(torch.randn(8, 16)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()  # here
    optimizer.step()
    time.sleep(0.1)
while dist.get_rank() == 0:
    time.sleep(60)  # there
"""

# Before the first step, with locks of any name: nothing was learned of this run yet.
CROSSED = """
import threading
import torch

a, b = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def save():
    with b:
        both.wait()
        with a:  # there
            pass


torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
threading.Thread(target=save, daemon=True).start()
with a:
    both.wait()
    with b:  # here
        pass
"""

HELD_AT_FORK = """
import threading
import torch
from torch.utils.data import DataLoader, Dataset

guard = threading.Lock()


class Pages(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        with guard:  # here
            return torch.zeros(8)


if __name__ == "__main__":
    loader = DataLoader(Pages(), batch_size=8, num_workers=2)
    guard.acquire()
    batches = iter(loader)
    guard.release()
    next(batches)  # waits
"""

# Look-alikes of both: a minute before the first step in which nothing moves, and which ends by itself.
SLOW_START = """
import threading
import time
import torch

wake = threading.Event()
threading.Thread(target=lambda: (time.sleep(34), wake.set()), daemon=True).start()
wake.wait()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""

BLOCKED = """
import queue

for step in range(1000):
    train_step(torch.randn(8, 64), 0.1)
    if step == 25:
        queue.Queue().get()  # here
"""

NAMES = [*SCRIPTS, "data-worker", "missing-rank"]
BEFORE_THE_FIRST_STEP = ["crossed-locks", "held-at-fork"]
CAUSES = {
    "silent-peer": "hang.io",
    "fifo-without-writer": "hang.io",
    "polling": "hang.poll",
    "data-worker": "hang.worker",
    "missing-rank": "hang.collective",
}
# What the others wait for is a line of the rank that never came.
ELSEWHERE = {"missing-rank": "# there"}


def has_begun(one: Case) -> bool:
    """Whether its script stands behind its imports."""
    timeline = one.holter.record() / "timeline"
    return timeline.exists() and bool(one.holter.timeline("steps") or one.holter.events("adapter"))


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory, wait_for: Callable[..., object]) -> Iterator[dict[str, Case]]:
    """Every script, each stopped by Holter but the one that is left to hang; they hang beside each other, but not all
    start at once."""
    folder: Path = tmp_path_factory.mktemp("hangs")
    cases = {name: Case(folder / name, LOOP + textwrap.dedent(text)) for name, text in SCRIPTS.items()}
    cases["data-worker"] = Case(folder / "data-worker", WORKER)
    cases["missing-rank"] = Case(folder / "missing-rank", RANKS)
    cases["crossed-locks"] = Case(folder / "crossed-locks", CROSSED)
    cases["held-at-fork"] = Case(folder / "held-at-fork", HELD_AT_FORK)
    cases["slow-start"] = Case(folder / "slow-start", SLOW_START)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    live = Case(folder / "live", TORCH + BLOCKED).start()
    for number, (name, one) in enumerate(cases.items()):
        words = [*launcher, one.script] if name == "missing-rank" else []
        one.start(words, options=["--on-hang", "stop"])
        if number % 3 == 2:
            wait_for(lambda one=one: has_begun(one), f"the first steps of {name}, or what it hangs in before them")
    for one in cases.values():
        one.finish()
    cases["live"] = live
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_block_is_told_with_its_line(hung: dict[str, Case], name: str) -> None:
    """The stall is told, and the finding names the blocked line and the kind of wait."""
    case = hung[name]

    assert case.holter.events("stall"), as_text(case)
    assert case.kind() == "hung", as_text(case)
    assert case.first()["cause"] == CAUSES.get(name, "hang.deadlock"), as_text(case)
    assert case.first()["culprit"]["line"] == case.line(ELSEWHERE.get(name, "# here")), as_text(case)


@pytest.mark.parametrize("name", BEFORE_THE_FIRST_STEP)
def test_a_wait_that_nothing_can_end_is_told_before_the_first_step(hung: dict[str, Case], name: str) -> None:
    """Whatever the locks are called, and though nothing was learned of the run yet."""
    case = hung[name]

    assert case.holter.events("stall"), as_text(case)
    assert case.kind() == "hung", as_text(case)
    assert case.first()["cause"] in ("hang.deadlock", "hang.worker"), as_text(case)
    assert case.first()["culprit"]["line"] == case.line("# here"), as_text(case)


def test_a_slow_start_that_ends_by_itself_is_no_hang(hung: dict[str, Case]) -> None:
    """The main thread waits for a lock, and the thread that will release it sleeps."""
    case = hung["slow-start"]

    assert case.code == 0
    assert case.holter.events("stall") == []
    assert case.illnesses() == [], as_text(case)


@pytest.mark.parametrize("name", [*NAMES, *BEFORE_THE_FIRST_STEP])
def test_a_hung_run_is_stopped_and_leaves_nothing(hung: dict[str, Case], name: str) -> None:
    """--on-hang stop exits with 124, and no process of the run is left."""
    case = hung[name]

    assert case.code == 124
    assert left_of(case) == []


def test_the_other_thread_of_a_deadlock_is_named(hung: dict[str, Case]) -> None:
    """Where two threads wait for each other, the verdict says where the other one stands."""
    case = hung["two-threads"]

    assert f"train.py:{case.line('# there')}" in case.first()["claim"]


def test_both_lines_of_a_lock_that_was_taken_twice_are_named(hung: dict[str, Case]) -> None:
    """The line that waits is the culprit; the one that took the lock is in the claim."""
    case = hung["lock-twice"]
    took = case.line("best so far") - 1

    assert f"the same thread has held it since train.py:{took}" in case.first()["claim"], as_text(case)


def test_the_producer_that_died_is_named(hung: dict[str, Case]) -> None:
    """A queue that stays empty: who should have filled it, and how that one ended."""
    case = hung["producer-that-died"]

    assert f"filled only at train.py:{case.line('# filled')}" in case.first()["claim"], as_text(case)
    assert f"ValueError at train.py:{case.line('# there')}" in case.first()["claim"], as_text(case)


def test_a_child_that_fills_its_pipe_and_the_parent_that_waits_for_it_are_named(hung: dict[str, Case]) -> None:
    """The kernel shows the circle, though a thread of our own waits at a pipe beside it."""
    case = hung["full-pipe"]

    assert "which in turn waits in write() for it" in case.first()["claim"], as_text(case)
    assert "communicate()" in case.first()["cures"][0]["title"], as_text(case)


def test_the_line_of_a_forked_child_is_named(hung: dict[str, Case]) -> None:
    """A child that was forked with a held lock is looked at too."""
    case = hung["forked-lock"]

    assert f"stands at train.py:{case.line('# there')}" in case.first()["claim"], as_text(case)


def test_the_rank_that_never_came_is_named(hung: dict[str, Case]) -> None:
    """The ranks that wait are the victims; the verdict says where the missing one stands."""
    case = hung["missing-rank"]

    assert "rank 0 never came to the exchange of gradients" in case.first()["claim"]
    assert f"it stands at train.py:{case.line('# there')}" in case.first()["claim"]


def test_the_child_that_does_not_end_is_named(hung: dict[str, Case]) -> None:
    """A wait for a child says for which."""
    assert "sleep (pid" in hung["child-that-stays"].first()["claim"]


def test_a_live_hung_run_says_so(hung: dict[str, Case], wait_for: Callable[..., object]) -> None:
    """`holter why` on a run that hangs now says hung, and the run is left as it is."""
    one = hung["live"]
    wait_for(lambda: one.holter.events("stall"), "the stall")

    verdict = one.verdict()

    assert verdict["ending"]["kind"] == "hung"
    assert verdict["findings"][0]["culprit"]["line"] == one.line("# here")
    assert one.process is not None
    assert one.process.poll() is None


def test_a_hung_run_that_is_interrupted_is_still_a_hang(hung: dict[str, Case], wait_for: Callable[..., object]) -> None:
    """Ctrl-C on a run that hangs: that it hung stands first, with its line."""
    one = hung["live"]
    wait_for(lambda: one.holter.events("stall"), "the stall")
    assert one.process is not None
    one.process.send_signal(signal.SIGINT)
    one.finish()

    assert one.kind() == "hung"
    assert one.first()["cause"] == "hang.deadlock", as_text(one)
    assert one.first()["culprit"]["line"] == one.line("# here")
