"""What is done after each way of ending: which change a cause asks for, and when nothing is."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from holter.agent.heal.resume_loop import Store
from holter.finding import Ending, EndingKind, Finding, Grade, Verdict
from holter.record import environment
from holter.record.reader import Record
from holter.remedies import restart
from holter.remedies.ledger import Ledger, Position
from holter.remedies.memory_ending import said_in
from holter.remedies.policy import rule_on
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
        (ended("killed", "leak.graph-retained", signal="SIGKILL"), "afresh"),
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
    ruling = rule_on(verdict, Ledger(), resumes=True, said_so=True)

    assert ruling.remedy is not None
    assert ruling.remedy.name == name


NEVER = [
    ended("completed"),
    ended("stopped-early", "early-stop.input-exhausted"),
    ended("interrupted"),
    ended("running", "leak.tensors-kept"),
    ended("exception", "user-error"),
    ended("stopped-early", "leak.tensors-kept"),
    ended("exception", "nan.math"),
    ended("exception", "oversize.batch", "hypothesis"),
    ended("killed", "external.signal", "established", "SIGKILL"),
    ended("killed", "external.signal", "hypothesis", "SIGKILL"),
    ended("killed", "leak.tensors-kept", "hypothesis", "SIGKILL"),
    ended("killed", "leak.tensors-kept", "supported", "SIGTERM"),
    ended("killed", "external.signal", "supported", "SIGTERM"),
    ended("killed", "external.time-limit", "established", "SIGXCPU"),
]


@pytest.mark.parametrize("verdict", NEVER, ids=lambda v: f"{v.ending.kind}-{v.ending.signal or v.findings[:1]}")
def test_some_endings_are_nobody_elses_business(verdict: Verdict) -> None:
    """Neither a restart nor a word about one."""
    ruling = rule_on(verdict, Ledger(), resumes=True, said_so=True)

    assert (ruling.remedy, ruling.declined) == (None, "")


@pytest.mark.parametrize("cause", ["leak.tensors-kept", "oversize.batch", "fragmentation.device-blocks"])
def test_a_finding_of_memory_alone_starts_nothing_again(cause: str) -> None:
    """The run ended by an exit or an error of its own, whatever was found in it."""
    ruling = rule_on(ended("exception", cause, "established"), Ledger(), resumes=True)

    assert (ruling.remedy, ruling.declined) == (None, "")


def test_a_crash_is_not_repeated_because_memory_grew() -> None:
    """Only a full /dev/shm ends a process with a signal of its own."""
    ruling = rule_on(ended("crashed", "leak.tensors-kept", signal="SIGSEGV"), Ledger(), resumes=True)

    assert ruling.remedy is None
    assert "Holter knows no change" in ruling.declined


OOM = {"k": "exception", "m": 5.0, "pid": 7, "main": True, "type": "RuntimeError", "message": "CUDA out of memory."}
COMMAND = {"k": "process", "m": 0.0, "pid": 7, "python": True}
END = {"k": "end", "m": 6.0, "exit_code": 1}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([COMMAND, OOM, END], True),
        ([COMMAND, {**OOM, "type": "_ArrayMemoryError", "message": "Unable to allocate 4 TiB"}, END], True),
        ([COMMAND, {**OOM, "type": "KeyError", "message": "'loss'"}, END], False),
        ([COMMAND, {**OOM, "main": None}, {"k": "exit-called", "m": 5.5, "status": "1"}, END], False),
        ([COMMAND, OOM, {"k": "exit-called", "m": 5.5, "pid": 8, "status": "1"}, END], False),
        ([COMMAND, {**OOM, "pid": 8}, END], False),
        ([{**COMMAND, "python": False}, {**OOM, "pid": 8}, END], True),
        ([{**COMMAND, "python": False}, {**OOM, "pid": 8}, {**END, "m": 90.0}], False),
        ([COMMAND, END], False),
    ],
    ids=["device", "numpy", "own", "caught", "exit", "child", "shell", "long ago", "nothing"],
)
def test_only_the_last_words_of_the_command_itself_say_that_memory_ran_out(
    events: list[dict[str, Any]], said: bool
) -> None:
    """Not an error that was caught, nor a child's, nor one that an exit of the script's own came after."""
    assert said_in(Record({}, events)) is said


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
    """A leak would only grow again from the beginning; a batch in chunks fits from the first step on."""
    leak = rule_on(ended("oom-killed", "leak.tensors-kept"), Ledger(), resumes=False)
    batch = rule_on(ended("oom-killed", "oversize.batch"), Ledger(), resumes=False)

    assert "holter.resumable" in leak.declined
    assert batch.remedy is not None


def test_a_change_that_nothing_heeds_is_not_made() -> None:
    """A framework without a reflex for it."""
    worker = ended("hung", "hang.worker")
    worker.run["frameworks"] = {"tensorflow": "2"}

    assert "only possible for" in rule_on(worker, Ledger(), resumes=True).declined


def test_a_kill_for_want_of_memory_goes_on_from_its_state_where_nothing_heeds_the_change() -> None:
    """A loop without a framework: a new process has room again, and without a state there is nothing to gain."""
    plain = ended("oom-killed", "oversize.spike", "hypothesis")
    plain.run["frameworks"] = {}
    ruling = rule_on(plain, Ledger(), resumes=True)

    assert ruling.remedy is not None
    assert ruling.remedy.name == "afresh"
    assert "only possible for" in rule_on(plain, Ledger(), resumes=False).declined


def refused(*declined: str) -> Verdict:
    """A PyTorch run that ended with an error for lack of memory, with what its reflexes have declined."""
    found = ended("exception", "oversize.batch")
    found.run["frameworks"] = {"torch": "2"}
    acts = tuple({"act": "split-batch", "done": False, "because": because} for because in declined)
    return replace(found, interventions=acts)


def test_an_error_outside_of_the_models_call_is_met_by_chunks_from_the_first_step_on() -> None:
    """It was a backward or a loss, which are made in chunks then: what fails even so is neither."""
    ledger = Ledger()
    first = rule_on(refused(), ledger, resumes=False, said_so=True)
    assert first.remedy is not None
    assert first.remedy.environ == {"HOLTER_SPLIT": "2"}
    ledger.changes.append(first.remedy)
    then = rule_on(refused(), ledger, resumes=False, said_so=True)

    assert then.remedy is None
    assert "outside of them" in then.declined


def test_a_run_that_was_split_and_is_killed_all_the_same_is_split_further() -> None:
    killed = ended("oom-killed", "oversize.batch")
    killed.run["frameworks"] = {"torch": "2"}
    ledger = Ledger()
    chunks = []
    for _ in range(3):
        ruling = rule_on(killed, ledger, resumes=False)
        assert ruling.remedy is not None
        ledger.changes.append(ruling.remedy)
        chunks.append(ruling.remedy.environ["HOLTER_SPLIT"])

    assert chunks == ["2", "4", "8"]


def test_where_the_split_was_declined_nothing_is_started_again() -> None:
    """The same would only be declined once more."""
    ruling = rule_on(refused("hooks"), Ledger(), resumes=False, said_so=True)

    assert ruling.remedy is None
    assert ruling.declined == "the batch can't be run in chunks: hooks"


def test_a_script_that_would_write_over_its_checkpoints_is_not_started_again() -> None:
    """It would begin anew, and write over what it has written."""
    ruling = rule_on(refused(), Ledger(), resumes=False, said_so=True, saved=True)

    assert ruling.remedy is None
    assert "--resume-args" in ruling.declined


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
    found = [name for path in remedies.glob("*.py") for name in re.findall(r"environment\.([A-Z]+)", path.read_text())]
    asked = {getattr(environment, name) for name in found}

    assert {"HOLTER_SPLIT", "HOLTER_WORKERS"} <= asked
    assert asked <= set(environment.OF_AN_ATTEMPT)


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


def test_restarts_that_come_no_further_are_given_up_with_what_was_tried() -> None:
    """Three in a row."""
    ledger = Ledger(Position(step=16), fruitless=3, changes=[Remedy("afresh", "a new process", "exact")] * 3)
    ruling = rule_on(ended("oom-killed", "leak.tensors-kept"), ledger, resumes=True)

    assert (ruling.remedy, ruling.doomed) == (None, True)
    assert ruling.declined == "3 restarts in a row did not get past step 16. Tried: a new process (3 times)"


class Quiet:
    """An agent that notes its errors."""

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
