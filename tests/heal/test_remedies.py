"""What is done after each way of ending: which change a cause asks for, and when nothing is."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from holter.beacon.reflexes._state_store import Store
from holter.finding import Ending, EndingKind, Finding, Grade, Verdict
from holter.recorder.state_room import VARIABLES
from holter.remedies import restart
from holter.remedies.ledger import Ledger, Position
from holter.remedies.policy import Feeds, rule_on
from holter.remedies.remedy import Remedy


def ended(kind: EndingKind, cause: str = "", grade: Grade = "supported", signal: str | None = None) -> Verdict:
    """A run that ended so, for that cause."""
    findings = (Finding(cause, grade, "so it is"),) if cause else ()
    return Verdict(
        {"id": "r-0001", "frameworks": {"torch": "2", "keras": "3"}},
        Ending(kind, "The run ended", signal=signal),
        False,
        findings,
    )


@pytest.mark.parametrize(
    ("verdict", "name"),
    [
        (ended("killed", "external.signal", "hypothesis", "SIGKILL"), "afresh"),
        (ended("oom-killed", "leak.graph-retained"), "afresh"),
        (ended("exception", "leak.tensors-kept"), "afresh"),
        (ended("oom-killed", "leak.worker-copy"), "no-workers"),
        (ended("crashed", "resource.shared-memory", signal="SIGBUS"), "no-workers"),
        (ended("hung", "hang.worker"), "no-workers"),
        (ended("hung", "hang.io"), "afresh"),
        (ended("exception", "fragmentation.device-blocks"), "whole-blocks"),
        (ended("oom-killed", "oversize.batch"), "split"),
        (ended("exception", "oversize.spike"), "split"),
    ],
    ids=lambda value: f"{value.ending.kind}-{value.findings[0].cause}" if isinstance(value, Verdict) else value,
)
def test_a_cause_asks_for_its_change(verdict: Verdict, name: str) -> None:
    """With a state to go on from."""
    ruling = rule_on(verdict, Ledger(), resumes=True)

    assert ruling.remedy is not None
    assert ruling.remedy.name == name


NEVER = [
    ended("completed"),
    ended("stopped-early", "early-stop.input-exhausted"),
    ended("interrupted"),
    ended("running", "leak.tensors-kept"),
    ended("exception", "user-error"),
    ended("exception", "nan.math"),
    ended("exception", "oversize.batch", "hypothesis"),
    ended("killed", "external.signal", "established", "SIGKILL"),
    ended("killed", "external.signal", "supported", "SIGTERM"),
    ended("killed", "external.time-limit", "established", "SIGXCPU"),
]


@pytest.mark.parametrize("verdict", NEVER, ids=lambda v: f"{v.ending.kind}-{v.ending.signal or v.findings[:1]}")
def test_some_endings_are_nobody_elses_business(verdict: Verdict) -> None:
    """Neither a restart nor a word about one."""
    ruling = rule_on(verdict, Ledger(), resumes=True)

    assert (ruling.remedy, ruling.declined) == (None, "")


@pytest.mark.parametrize("kind", get_args(EndingKind))
def test_no_ending_without_a_cause_is_healed(kind: EndingKind) -> None:
    """Where the doctor has no word on it, neither have the remedies."""
    assert rule_on(ended(kind, signal="SIGKILL"), Ledger(), resumes=True).remedy is None


@pytest.mark.parametrize("cause", ["native-crash.fatal-signal", "oversize.model", "disk-full.no-space-left"])
def test_what_has_no_remedy_is_declined_by_name(cause: str) -> None:
    """An unchanged retry is not made."""
    ruling = rule_on(ended("crashed", cause, signal="SIGSEGV"), Ledger(), resumes=True)

    assert ruling.remedy is None
    assert cause in ruling.declined


def test_a_new_process_alone_needs_a_state_and_a_cure_does_not() -> None:
    """A leak would only grow again from the beginning; a batch in parts fits from the first step on."""
    leak = rule_on(ended("oom-killed", "leak.tensors-kept"), Ledger(), resumes=False)
    batch = rule_on(ended("oom-killed", "oversize.batch"), Ledger(), resumes=False)

    assert "holter.resumable" in leak.declined
    assert batch.remedy is not None


def test_a_change_that_nothing_heeds_is_not_made() -> None:
    """A framework without a reflex for it."""
    worker = ended("hung", "hang.worker")
    worker.run["frameworks"] = {"tensorflow": "2"}

    assert "torch alone" in rule_on(worker, Ledger(), resumes=True).declined


def refused(*declined: str) -> Verdict:
    """A PyTorch run that ended with an error for want of memory, with what its reflexes have declined."""
    found = ended("exception", "oversize.batch")
    found.run["frameworks"] = {"torch": "2"}
    acts = tuple({"act": "split-loader", "done": False, "because": because} for because in declined)
    return replace(found, interventions=acts)


def test_an_error_that_went_through_the_split_in_place_is_met_at_the_loader() -> None:
    """Two parts, eight, thirty-two: also from the beginning."""
    ledger = Ledger()
    parts = []
    for _ in range(3):
        ruling = rule_on(refused(), ledger, resumes=False)
        assert ruling.remedy is not None
        ledger.changes.append(ruling.remedy)
        parts.append(ruling.remedy.environ["HOLTER_LOADER"])

    assert parts == ["2", "8", "32"]
    assert "was tried" in rule_on(refused(), ledger, resumes=False).declined


@pytest.mark.parametrize(
    ("verdict", "feeds", "because"),
    [
        (refused("the loss compares samples"), Feeds(), "could not hand it out in parts: the loss compares samples"),
        (refused(), Feeds(loader=False), "come from no DataLoader"),
        (refused(), Feeds(trainer=True), "a Trainer counts"),
        (refused(), Feeds(saved=True), "--resume-args"),
    ],
    ids=["declined", "no loader", "trainer", "checkpoints"],
)
def test_where_the_loader_can_not_help_nothing_is_started_again(verdict: Verdict, feeds: Feeds, because: str) -> None:
    """Nor where the script would write over what it has written."""
    ruling = rule_on(verdict, Ledger(), resumes=False, feeds=feeds)

    assert ruling.remedy is None
    assert because in ruling.declined


def test_a_change_that_was_not_enough_is_made_larger() -> None:
    """Two parts, four, eight; no workers only once."""
    ledger = Ledger()
    parts = []
    for _ in range(3):
        ruling = rule_on(ended("oom-killed", "oversize.batch"), ledger, resumes=True)
        assert ruling.remedy is not None
        ledger.changes.append(ruling.remedy)
        parts.append(ruling.remedy.environ["HOLTER_SPLIT"])
    ledger.changes.append(Remedy("no-workers", "without workers", "exact"))

    assert parts == ["2", "4", "8"]
    assert "was tried" in rule_on(ended("hung", "hang.worker"), ledger, resumes=True).declined


def test_what_a_remedy_asks_for_reaches_no_run_that_is_started_within() -> None:
    """Every variable of ours that a remedy sets is taken out of the environment before another run is begun."""
    remedies = Path(restart.__file__).parent
    asked = {name for path in remedies.glob("*.py") for name in re.findall(r'"(HOLTER_\w+)"', path.read_text())}

    assert {"HOLTER_SPLIT", "HOLTER_LOADER", "HOLTER_WORKERS"} <= asked
    assert asked <= set(VARIABLES)


def test_the_ledger_counts_restarts_that_came_no_further() -> None:
    """A later step or epoch begins the count anew; the first attempt is no restart."""
    ledger = Ledger()
    change = Remedy("afresh", "a new process", "exact")
    counts = []
    for step, epoch in ((10, 1), (10, 1), (9, 1), (12, 1), (12, 1), (3, 2), (12, 2), (12, 2), (11, 2)):
        ledger.ended(Position(step, epoch))
        ledger.changes.append(change)
        counts.append(ledger.fruitless)

    assert counts == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert ledger.doomed


class Quiet:
    """A guest that notes its errors."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.guard = self

    def caught(self, _where: str, error: Exception) -> None:
        self.errors.append(error)

    def say(self, *_args: Any, **_fields: Any) -> None: ...


class Nothing:
    tensors: tuple[Any, ...] = ()

    def wait(self) -> None: ...


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("HOLTER_STATE", "HOLTER_STATE_DISK"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return Store(Quiet(), "loop")


def keep(store: Store, number: int) -> None:
    store.busy = True  # in this thread
    store.waiting = {"steps": number, "epoch": 1}, Nothing()
    store._work()


def test_two_generations_are_kept_and_a_torn_one_is_passed_over(store: Store) -> None:
    """The machine went down while the newest was on its way to the disk."""
    for number in range(5):
        keep(store, number)
    names = sorted(os.listdir(store.fast))
    newest = Path(store.fast, names[-1])
    whole = store.newest()
    newest.write_bytes(newest.read_bytes()[:20])
    torn = store.newest()

    assert names == ["loop.4.state", "loop.5.state"]
    assert whole is not None
    assert torn is not None
    assert (whole[0]["steps"], torn[0]["steps"]) == (4, 3)


def test_a_state_that_finds_no_room_in_memory_goes_to_the_disk(store: Store) -> None:
    """A folder that can't be written to costs nothing but that copy."""
    store.fast = str(Path(store.fast) / "gone")
    keep(store, 7)
    found = store.newest()

    assert found is not None
    assert (found[0]["steps"], found[2]) == (7, "on disk")
