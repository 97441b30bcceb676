"""Each probe is guarded by itself, and the pace follows the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holter.errors import NoData
from holter.probes.probe import Tree
from holter.recorder.loop.sampler import CALM_S, URGENT_S, Sampler, nearest_limit

TREE = Tree(1, [1])
GB = 1 << 30


class Scripted:
    """A probe that does what it is told."""

    def __init__(self, name: str, act: Callable[[], Any], every: float = 1.0, urgent: bool = False) -> None:
        self.name, self.act, self.every, self.urgent = name, act, every, urgent
        self.reads = 0

    def read(self, tree: Tree) -> Any:  # noqa: ARG002 - the shape of a probe
        self.reads += 1
        return self.act()


def raising(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


class Memory(Scripted):
    """The cgroup's figures, set by hand."""

    def __init__(self, limit: int = 10 * GB) -> None:
        super().__init__("cgroup", lambda: {"usage": self.usage, "limit": limit}, urgent=True)
        self.usage = GB


def test_a_probe_that_fails_costs_no_other() -> None:
    """One raises, one has no data, one gives nothing, one gives what is no reading: the fifth is read all the same."""
    probes = [
        Scripted("raises", raising(ValueError("no such field"))),
        Scripted("absent", raising(NoData("this kernel has no PSI"))),
        Scripted("empty", dict),
        Scripted("none", lambda: None),
        Scripted("good", lambda: {"value": 7}),
    ]

    line, missing = Sampler(probes).sample(TREE, 0.0)

    assert line == {"good": {"value": 7}, "pace": "calm"}
    assert {fact["probe"]: fact["because"] for fact in missing} == {
        "raises": "ValueError: no such field",
        "absent": "this kernel has no PSI",
        "none": "TypeError: 'NoneType' object is not iterable",
    }


def test_a_reason_is_told_once_and_again_when_it_changes() -> None:
    """An hour of the same failure is one line; another reason is another, and so is the same one after a recovery."""
    reasons = iter(["gone"] * 3 + ["forbidden"] * 2 + [None] + ["gone"])

    def act() -> Any:
        because = next(reasons)
        if because:
            raise NoData(because)
        return {"value": 1}

    sampler = Sampler([Scripted("shy", act)])
    given = [fact["because"] for now in range(0, 210, 30) for fact in sampler.sample(TREE, float(now))[1]]

    assert given == ["gone", "forbidden", "gone"]


def test_a_probe_that_fails_rests() -> None:
    """Half a minute, also when the others hurry; what works is read each second meanwhile."""
    bad, good, memory = (
        Scripted("bad", raising(OSError("x")), urgent=True),
        Scripted("good", lambda: {"a": 1}),
        Memory(),
    )
    memory.usage = 10 * GB
    sampler = Sampler([bad, good, memory])
    for tick in range(290):
        sampler.sample(TREE, tick * 0.1)

    assert (bad.reads, good.reads, memory.reads) == (1, 29, 290)


def test_an_expensive_probe_is_read_less_often() -> None:
    """One that takes 60 ms of a core each time is read every ten seconds; a cheap one is not touched by that."""
    spent = [0.0]

    def costly() -> dict[str, int]:
        spent[0] += 0.060
        return {"a": 1}

    dear, cheap = Scripted("dear", costly), Scripted("cheap", lambda: {"a": 1})
    sampler = Sampler([dear, cheap], cpu_clock=lambda: spent[0])
    for now in range(100):
        sampler.sample(TREE, float(now))

    assert (dear.reads, cheap.reads) == (10, 100)
    assert sampler.costs() == {"dear": pytest.approx(0.060), "cheap": 0.0}


def test_within_ten_per_cent_of_the_limit_it_hurries_and_goes_back() -> None:
    """Above nine tenths ten readings a second of what tells how near the wall is, below them one."""
    memory, slow = Memory(), Scripted("slow", lambda: {"a": 1})
    sampler = Sampler([memory, slow])
    now = 0.0

    def after(seconds: float, usage: float) -> float:
        nonlocal now
        memory.usage = int(usage * GB)
        until = now + seconds
        while now < until:
            sampler.sample(TREE, now)
            now += sampler.pace
        return sampler.pace

    assert after(10, 8.9) == CALM_S
    assert after(10, 9.1) == URGENT_S
    reads = slow.reads
    assert after(2, 9.1) == URGENT_S
    assert slow.reads - reads <= 3
    assert after(10, 5.0) == CALM_S


def test_growth_that_would_reach_the_limit_soon_hurries() -> None:
    """0.3 GB a second with 8 GB to go is half a minute; 0.1 GB a second is not."""
    for rate, pace in ((0.1, CALM_S), (0.4, URGENT_S)):
        memory = Memory()
        sampler = Sampler([memory])
        for now in range(4):
            memory.usage = int((1 + rate * now) * GB)
            sampler.sample(TREE, float(now))

        assert sampler.pace == pace


def test_growth_that_stops_lets_it_rest() -> None:
    """Five seconds on a plateau, far from the limit."""
    memory = Memory()
    sampler = Sampler([memory])
    for tick in range(120):
        now = tick * 0.1
        memory.usage = int((1 + min(now, 3) * 0.5) * GB)
        sampler.sample(TREE, now)

    assert sampler.pace == CALM_S


def test_another_limit_that_comes_nearest_is_no_growth() -> None:
    """The machine's 60 of 100 GB are not what the container's 1 of 2 GB grew to."""
    limits = iter([{"usage": GB, "limit": 2 * GB}] * 3 + [{"usage": GB, "limit": 4 * GB}] * 3)
    cgroup = Scripted("cgroup", lambda: next(limits), urgent=True)
    machine = Scripted("memory", lambda: {"total": 100 * GB, "available": 55 * GB}, urgent=True)
    sampler = Sampler([cgroup, machine])

    assert [sampler.sample(TREE, float(now))[0]["pace"] for now in range(6)] == ["calm"] * 6


def test_a_memory_that_can_no_longer_be_read_is_no_reason_to_hurry() -> None:
    """When the last figure is old, the pace is calm again."""
    memory = Memory()
    memory.usage = 10 * GB
    sampler = Sampler([memory])
    sampler.sample(TREE, 0.0)
    assert sampler.pace == URGENT_S
    memory.act = raising(OSError("gone"))
    for tick in range(1, 80):
        sampler.sample(TREE, tick * 0.1)

    assert sampler.pace == CALM_S


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ({}, None),
        ({"cgroup": {"usage": 5}}, None),
        ({"cgroup": {"limit": 10}}, (0, 10)),
        ({"cgroup": {"usage": 9, "file": 6, "anon": 3, "limit": 10}}, (3, 10)),
        ({"cgroup": {"usage": 9, "limit": 10}, "memory": {"total": 100, "available": 50}}, (9, 10)),
        ({"cgroup": {"usage": 1, "limit": 10}, "memory": {"total": 100, "available": 50}}, (50, 100)),
        ({"nvidia": {"list": [{"used": 99, "total": 100}]}}, None),
    ],
)
def test_the_nearest_limit_is_the_one_that_is_fullest(
    line: dict[str, Any], nearest: tuple[float, float] | None
) -> None:
    """Of container and machine; pages of files can be dropped, and a GPU is filled on purpose."""
    assert nearest_limit(line) == nearest
