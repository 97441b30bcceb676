"""Who computes and who waits."""

from __future__ import annotations

import sys
import time

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.probe import Tree
from holter.probes.threads_linux import Threads
from holter.recorder.loop.processes import cpu_of


def test_the_busy_thread_is_first(start, until):
    """Of twenty threads the one that computes is named first, with its share of a core."""
    process = start(
        "import threading, time\n"
        "def work():\n"
        "    while True: sum(range(10000))\n"
        "for _ in range(19): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "t = threading.Thread(target=work, daemon=True); t.start()\n"
        "print(t.native_id, flush=True); time.sleep(600)"
    )
    probe = Threads()
    tree = Tree(process.pid, [process.pid])

    assert probe.read(tree) == {}
    begun = cpu_of(process.pid)
    until(lambda: cpu_of(process.pid) - begun >= 0.5)
    reading = probe.read(tree)

    assert int(process.first_line) == reading["list"][0]["tid"]
    assert 0.4 < reading["list"][0]["cpu"] * reading["wall"] <= cpu_of(process.pid)
    assert process.pid == reading["list"][0]["pid"]
    assert reading["wall"] >= 0.5


def test_idle_process_is_not_searched(start):
    """A process that did nothing has no busy threads."""
    process = start("print(1, flush=True); import time; time.sleep(600)")
    probe = Threads()
    tree = Tree(process.pid, [process.pid])
    probe.read(tree)
    time.sleep(0.2)

    assert probe.read(tree)["list"] == []


def write(proc, ticks: dict[int, int], names: dict[int, str] | None = None) -> None:
    def line(tid: int, used: int) -> str:
        name = (names or {}).get(tid, "python")
        return f"{tid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {used} 0 0 0 20 0 1 0 5 1 1 0 0 0\n"

    for tid, used in ticks.items():
        (proc / f"10/task/{tid}").mkdir(parents=True, exist_ok=True)
        (proc / f"10/task/{tid}/stat").write_text(line(tid, used))
    (proc / "10/stat").write_text(line(10, sum(ticks.values())))


def test_shares_over_the_interval(tmp_path):
    """The share of a core is what was used since the last reading; a new thread's time counts in full."""
    now = iter([0.0, 10.0])
    probe = Threads(str(tmp_path), clock=lambda: next(now))
    tree = Tree(10, [10])
    write(tmp_path, {10: 5000, 11: 100})
    probe.read(tree)
    write(tmp_path, {10: 5000, 11: 600, 12: 1000}, {12: "pt_pin) S 1"})

    reading = probe.read(tree)

    assert reading["list"] == [
        {"pid": 10, "tid": 12, "name": "pt_pin) S 1", "cpu": 1.0},
        {"pid": 10, "tid": 11, "name": "python", "cpu": 0.5},
    ]
    assert reading["wall"] == 10.0


def test_ready_but_not_running(tmp_path):
    """What a thread waited for a core is told beside what it had, where the kernel counts it."""
    now = iter([0.0, 10.0])
    probe = Threads(str(tmp_path), clock=lambda: next(now))
    write(tmp_path, {10: 0, 11: 0})
    for tid in (10, 11):
        (tmp_path / f"10/task/{tid}/schedstat").write_text("0 1000000000 5\n")
    probe.read(Tree(10, [10]))
    write(tmp_path, {10: 500, 11: 10})
    for tid in (10, 11):
        (tmp_path / f"10/task/{tid}/schedstat").write_text("0 6000000000 5\n")

    reading = probe.read(Tree(10, [10]))

    assert [(row["cpu"], row["wait"]) for row in reading["list"]] == [(0.5, 0.5), (0.01, 0.5)]
    assert (reading["wait"], reading["wanting"]) == (1.0, 2)


def test_at_most_twelve(tmp_path):
    """Twelve threads are enough."""
    now = iter([0.0, 10.0])
    probe = Threads(str(tmp_path), clock=lambda: next(now))
    write(tmp_path, dict.fromkeys(range(10, 40), 0))
    probe.read(Tree(10, [10]))
    write(tmp_path, {tid: tid for tid in range(10, 40)})

    assert list(range(39, 27, -1)) == [row["tid"] for row in probe.read(Tree(10, [10]))["list"]]


def test_a_costly_reading_makes_the_next_one_later(tmp_path):
    """With thousands of threads the probe reads more rarely."""
    cost = iter([0.0, 0.1])
    probe = Threads(str(tmp_path), cost_clock=lambda: next(cost))
    write(tmp_path, {10: 1})

    probe.read(Tree(10, [10]))

    assert probe.every == pytest.approx(50)
