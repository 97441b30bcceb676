"""Glances between samples: stacks are asked for while memory shoots up, and never in calm."""

from __future__ import annotations

from holter.recorder.loop.memory_look import MemoryLook

GB = 1e9
STACK = 'Current thread 0x00007f (most recent call first):\n  File "/home/u/train.py", line 8 in contrast\n'


class Ward:
    """A process whose memory is set by the test, and that answers a request for its stacks at once."""

    def __init__(self, folder):
        self.held = {7: 0.25 * GB}
        self.asked: list[int] = []
        self.events: list[dict] = []
        self.look = MemoryLook(folder, self.event, lambda pid: self.held.get(pid), self.ask)
        self.now = 100.0

    def ask(self, pid, path, _tid):
        self.asked.append(pid)
        before = path.stat().st_size if path.exists() else 0
        with open(path, "a") as file:
            file.write(STACK)
        return before

    def event(self, kind, **fields):
        self.events.append({"k": kind, **fields})

    def sample(self, limit=1 * GB):
        rows = [{"pid": pid, "rss": held} for pid, held in self.held.items()]
        used = sum(self.held.values())
        self.look.sampled({"cgroup": {"limit": limit, "usage": used}, "processes": {"list": rows}}, set(self.held))

    def glance(self, held=None):
        if held is not None:
            self.held[7] = held
        self.now += 0.05
        self.look.glance(self.now)


def test_a_process_that_shoots_up_is_asked_while_it_still_can_answer(tmp_path):
    ward = Ward(tmp_path)
    ward.sample()
    for held in (0.26, 0.40, 0.55, 0.70, 0.85):
        ward.glance(held * GB)
    ward.look.finish()

    assert len(ward.asked) == 4
    assert [round(event["used"] / GB, 2) for event in ward.events] == [0.40, 0.55, 0.70, 0.85]
    assert ward.events[0]["threads"][0]["frames"][0]["line"] == 8


def test_a_climb_of_many_seconds_is_looked_at_all_along(tmp_path):
    ward = Ward(tmp_path)
    for n in range(200):
        if n % 2 == 0:
            ward.sample()  # near the limit samples come as often as glances
        ward.glance((0.25 + n * 0.0035) * GB)

    assert 8 <= len(ward.asked) <= 12


def test_memory_that_stands_or_creeps_asks_for_nothing(tmp_path):
    ward = Ward(tmp_path)
    for n in range(200):
        if n % 20 == 0:
            ward.sample()
        ward.glance((0.25 + n * 0.0005) * GB)

    assert ward.asked == []


def test_a_jump_far_below_the_limit_asks_for_nothing(tmp_path):
    ward = Ward(tmp_path)
    ward.sample(limit=16 * GB)
    ward.glance(1.5 * GB)

    assert ward.asked == []


def test_a_sawtooth_is_looked_at_a_bounded_number_of_times(tmp_path):
    ward = Ward(tmp_path)
    for _ in range(300):
        ward.held[7] = 0.3 * GB
        ward.sample()
        for held in (0.45, 0.6, 0.75, 0.9):
            ward.glance(held * GB)

    assert len(ward.asked) == 24


def test_a_process_that_is_gone_costs_nothing(tmp_path):
    ward = Ward(tmp_path)
    ward.sample()
    ward.held.clear()
    ward.glance()

    assert ward.asked == []
