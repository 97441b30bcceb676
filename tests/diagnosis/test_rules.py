"""What holds for every rule, and for every record however odd."""

from __future__ import annotations

import json
import random

import pytest
from build import MONO, WALL, BuiltRecord, exception, ordinary_run, traceback_text

from holter.diagnosis.core.doctor import diagnose, verdict
from holter.diagnosis.core.rule import HEADINGS, Rule, find_rules
from holter.diagnosis.ending.ending import ending_of
from holter.figures.summary import summary_of
from holter.finding import Finding

ODD = [None, True, -1, 0, 3.5, float("nan"), float("inf"), 10**400, -(10**30), "", "SIGKILL", "\x1b[2J", [], {}, [1],
       {"a": 1}, [None], [{}], [{"pid": "x"}], "9", b"x", [[{}]], {"list": 5}, {"list": [{"pid": 1e400}]}]  # fmt: skip
KINDS = [
    "started",
    "process",
    "process-gone",
    "guest",
    "no-guest",
    "adapter",
    "made",
    "held",
    "trace",
    "anatomy",
    "plan",
    "epoch",
    "batch",
    "exception",
    "exit-called",
    "guest-error",
    "stacks",
    "kernel",
    "signal",
    "stall",
    "stall-over",
    "stopping",
    "missing",
    "cost",
    "said",
    "end",
    "dropped",
    "spawned",
    "failed",
    "exited",
    "early-stop",
    "fit-end",
    "detached",
    "nonsense",
]
FIELDS = [
    "changes",
    "lines",
    "kinds",
    "steps",
    "nodes",
    "watched",
    "took",
    "graph",
    "pid",
    "list",
    "rss_before",
    "private",
    "ppid",
    "exit_code",
    "signal",
    "core",
    "type",
    "message",
    "frames",
    "chain",
    "main",
    "file",
    "line",
    "function",
    "code",
    "status",
    "user",
    "role",
    "reason",
    "threads",
    "oom",
    "anon_rss",
    "constraint",
    "text",
    "sender",
    "sender_pid",
    "sender_uid",
    "since",
    "phase",
    "step",
    "limit",
    "learned",
    "cpu",
    "state",
    "wchan",
    "same_place",
    "steps",
    "epochs",
    "source",
    "epoch",
    "by",
    "what",
    "framework",
    "version",
    "error",
    "errno",
    "rss",
    "python",
    "name",
]
PROBES = [
    "processes",
    "cgroup",
    "memory",
    "vm",
    "disk",
    "shm",
    "rlimits",
    "nvidia",
    "apple",
    "guests",
    "proportional",
    "network",
]
READINGS = [
    "rss",
    "list",
    "pid",
    "usage",
    "limit",
    "file",
    "path",
    "oom_kill",
    "total",
    "free",
    "available",
    "mount",
    "nofile",
    "as",
    "pids",
    "pids_limit",
    "used",
    "tree",
    "index",
    "footprint",
    "pss",
    "fds",
    "state",
    "name",
    "step",
    "phase",
    "planned",
    "epoch",
]


def test_every_rule_tells_its_whole_story():
    """Each rule's docstring has the five headings in order, and its cause is of a known family."""
    families = {"leak", "oversize", "hang", "disk-full", "resource", "early-stop", "native-crash", "external"}
    families |= {"user-error", "thrash", "fragmentation", "input-bound", "recompile", "overhead", "cpu", "nan"}
    families |= {"device-lost", "straggler"}

    for rule in find_rules():
        places = [rule.story.find(f"\n{heading}: ") for heading in HEADINGS]
        assert -1 not in places, rule.cause
        assert places == sorted(places), rule.cause
        assert rule.cause.partition(".")[0] in families


def test_rules_have_different_causes():
    """No two rules speak for the same cause."""
    names = [rule.cause for rule in find_rules()]

    assert sorted(set(names)) == names


def says(cause, grade, yields_to=()):
    """A rule that always says the same."""
    return Rule(cause, "", lambda _record, _ending: Finding(cause, grade, "x"), yields_to)


def test_causes_come_before_what_follows_from_them():
    """Guesses come last; among the sure ones cause precedes effect; a finding that another explains is left out."""
    rules = (
        says("user-error", "established", ("disk-full",)),
        says("external.signal", "established"),
        says("leak.native", "hypothesis"),
        says("disk-full", "established"),
        says("hang.io", "supported"),
    )

    assert causes_of(rules) == ["disk-full", "hang.io", "external.signal", "leak.native"]


def test_a_leak_explains_swapping_and_swapping_explains_slow_steps():
    """However sure each of them is."""
    rules = (
        says("input-bound.slow-disk", "established"),
        says("thrash.swap", "established"),
        says("leak.tensors-kept", "supported"),
    )

    assert causes_of(rules) == ["leak.tensors-kept", "thrash.swap", "input-bound.slow-disk"]


def test_what_is_slow_or_grows_does_not_explain_an_error_of_the_scripts_own():
    """A run that ended by an exception has that as its root, unless memory or numbers explain it."""
    rules = (says("leak.native", "supported"), says("cpu.starved", "supported"), says("user-error", "established"))

    assert causes_of(rules)[0] == "user-error"


def test_a_guess_explains_nothing_that_is_known():
    """A hypothesis does not take the place of what is established."""
    rules = (says("disk-full", "hypothesis"), says("user-error", "established", ("disk-full",)))

    assert causes_of(rules) == ["user-error", "disk-full"]


def test_a_rule_that_raises_costs_itself_alone():
    """The others are heard, and the one that failed is named."""

    def fails(_record, _ending):
        yield Finding("nan.math", "established", "x")
        raise KeyError("loss")

    record = ordinary_run().exit(60, 1)

    found, failed = diagnose(record, ending_of(record), (Rule("nan.math", "", fails), says("disk-full", "supported")))

    assert [finding.cause for finding in found] == ["disk-full"]
    assert failed == ("nan.math: KeyError: 'loss'",)


def causes_of(rules):
    record = ordinary_run().exit(60, 1)
    return [finding.cause for finding in diagnose(record, ending_of(record), rules)[0]]


def _odd_line(rng, kind, names, depth=2):
    line = {"k": kind, "m": MONO + rng.random() * 100, "t": WALL + rng.random() * 100}
    for name in rng.sample(names, rng.randint(0, len(names) // 2)):
        line[name] = rng.choice(ODD)
        if depth and rng.random() < 0.3:
            inner = _odd_line(rng, "x", names, depth - 1)
            line[name] = [inner, rng.choice(ODD)] if rng.random() < 0.5 else inner
    return line


def odd_record(seed):
    """A record of random lines, on top of a sound one half of the time."""
    rng = random.Random(seed)
    record = ordinary_run(seconds=12) if rng.random() < 0.5 else BuiltRecord({"id": rng.choice(ODD)})
    for name in ("command", "started", "mono", "memory_total", "platform", "host", "name"):
        if rng.random() < 0.3:
            record.meta[name] = rng.choice(ODD)
    for _ in range(rng.randint(0, 25)):
        record.events.append(_odd_line(rng, rng.choice(KINDS), FIELDS))
    for _ in range(rng.randint(0, 25)):
        sample = {"k": "sample", "m": MONO + rng.random() * 100}
        for probe in rng.sample(PROBES, 4):
            sample[probe] = _odd_line(rng, "x", READINGS) if rng.random() < 0.7 else rng.choice(ODD)
        record.timeline.append(sample)
        record.timeline.append(_odd_line(rng, rng.choice(["steps", "device"]), ["pid", "n", "last", "sum", "epoch"]))
    if rng.random() < 0.5:
        record.exit(90, rng.choice([0, 1, 137, None, 10**40, "1"]), rng.choice([None, "SIGKILL", 9, 11, "x", -4]))
    record.events.sort(key=lambda line: line["m"])
    record.timeline.sort(key=lambda line: line["m"])
    record.output = rng.choice(["", traceback_text("E", "x" * 9000), "\x00\x1b]0;x\x07", 'File "', "Traceback " * 99])
    record.live, record.recorder_lost = rng.random() < 0.2, rng.random() < 0.3
    return record


@pytest.mark.nonsense
@pytest.mark.parametrize("block", range(8))
def test_verdict_never_raises_on_odd_records(block):
    """Wrong types, missing fields, NaN and huge numbers give a verdict, and valid JSON."""
    for seed in range(block * 100, block * 100 + 100):
        record = odd_record(seed)

        diagnosis = verdict(record)

        assert not diagnosis.failed_rules, (seed, diagnosis.failed_rules)
        summary_of(record, diagnosis)
        json.dumps(diagnosis.as_json(), allow_nan=False)


def test_verdict_is_a_pure_function():
    """The same record gives the same verdict twice, and is left as it was."""
    record = exception(ordinary_run(), 59, "ValueError", "x").exit(60, 1)
    before = json.dumps([record.meta, record.events, record.timeline])

    assert verdict(record) == verdict(record)
    assert json.dumps([record.meta, record.events, record.timeline]) == before
