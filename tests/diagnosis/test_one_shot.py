"""Input that can be read only once, seen in the script; and what only looks like it."""

from __future__ import annotations

import textwrap

import pytest
from build import TRAINER, ordinary_run

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.ending.one_shot import as_long_as_its_input, read_once

GENERATOR = """
def rows(count):
    for i in range(count):
        yield i

stream = {made}
for epoch in range(10):
    for x in {read}:
        loss = model(x)
        loss.backward()
        {after}
"""
SHARED = """
class Feed:
    def __init__(self, n):
        self.rows = {made}

    def __iter__(self):
        return self.rows
"""


def script(text, **parts):
    return textwrap.dedent(text).format(**parts).split("\n")


@pytest.mark.parametrize("made", ["rows(100)", "zip(a, b)", "map(read, files)", "(load(f) for f in files)", "iter(x)"])
def test_a_generator_read_in_every_epoch_is_found(made):
    assert read_once(script(GENERATOR, made=made, read="stream", after="")) == 8


@pytest.mark.parametrize("read", ["zip(stream, loader)", "enumerate(zip(loader, stream))", "tqdm(stream)"])
def test_also_where_it_is_read_beside_something_else(read):
    """The first of them that ends is the end of the loop."""
    assert read_once(script(GENERATOR, made="iter(other)", read=read, after="")) == 8


@pytest.mark.parametrize(
    ("made", "read", "after"),
    [
        ("list(rows(100))", "stream", ""),
        ("list(rows(100))", "zip(stream, loader)", ""),
        ("DataLoader(rows)", "stream", ""),
        ("rows(100)", "rows(100)", ""),
        ("rows(100)", "stream", "break"),
        ("itertools.cycle(rows(100))", "stream", ""),
    ],
)
def test_what_can_be_read_again_or_goes_on_is_not(made, read, after):
    assert read_once(script(GENERATOR, made=made, read=read, after=after)) is None


def test_an_endless_generator_is_not():
    text = GENERATOR.replace("for i in range(count):", "while True:")

    assert read_once(script(text, made="rows(1)", read="stream", after="")) is None


def test_a_dataset_that_hands_out_one_generator_is_found():
    assert read_once(script(SHARED, made="(i for i in range(n))")) == 7
    assert read_once(script(SHARED, made="list(range(n))")) is None


def test_epochs_that_pass_without_a_step_are_an_exhausted_input():
    record = ordinary_run()
    for epoch, step in ((1, 0), (2, 550), (3, 550), (4, 550)):
        record.event("epoch", 50 + epoch, pid=TRAINER, epoch=epoch, step=step)

    diagnosis = verdict(record.exit(60, 0))

    assert (diagnosis.ending.kind, diagnosis.findings[0].cause) == ("stopped-early", "early-stop.input-exhausted")
    assert "none of them after epoch 1 of 4" in diagnosis.findings[0].claim


def test_passes_that_draw_nothing_are_an_exhausted_input():
    """Something that is read beside the loader has run out: the loop over both does nothing."""
    record = ordinary_run().event("plan", 2, pid=TRAINER, steps=0, epochs=30, steps_per_epoch=150, source="loop")
    for epoch, step in ((1, 0), (2, 150), (3, 300), (4, 450), (5, 550)):
        record.event("epoch", 50 + epoch, pid=TRAINER, epoch=epoch, step=step)
    record.event("idle-passes", 59, pid=TRAINER, epoch=5, step=550)

    diagnosis = verdict(record.exit(60, 0))

    assert diagnosis.findings[0].cause == "early-stop.input-exhausted"
    assert "550 steps, none of them after epoch 5 of 30" in diagnosis.findings[0].claim


def test_passes_that_draw_nothing_before_other_steps_are_none():
    """The training went on after them."""
    record = ordinary_run().event("idle-passes", 30, pid=TRAINER, epoch=2, step=250)

    assert verdict(record.exit(60, 0)).healthy


def test_a_last_epoch_that_had_only_begun_is_none():
    record = ordinary_run().event("epoch", 1, pid=TRAINER, epoch=1, step=0)
    record.event("epoch", 59, pid=TRAINER, epoch=2, step=550)

    assert verdict(record.exit(60, 0)).healthy


COUNTED = """
schedule = LinearLR(optimizer, total_iters=args.steps)
for step, x in {loop}:
    loss = model(x)
    loss.backward()
    {after}
"""


@pytest.mark.parametrize(
    ("loop", "after", "found"),
    [
        ("zip(range(args.steps), loader)", "", 3),
        ("tqdm(zip(range(args.steps), loader))", "", 3),
        ("zip(range(1, args.steps), loader)", "", 3),
        ("zip(range(args.steps), loader)", "break", None),
        ("zip(range(args.most), loader)", "", None),
        ("zip(range(args.most), loader)", "print(f'{step} of at most {args.most}')", None),
        ("zip(range(500), loader)", "", None),
        ("zip(range(args.steps), range(9))", "", None),
        ("enumerate(loader)", "", None),
    ],
)
def test_a_loop_that_ends_with_its_input_falls_short_of_its_plan(loop, after, found):
    """A number that a schedule uses, too, is a plan; one that stands there alone is a bound."""
    assert as_long_as_its_input(script(COUNTED, loop=loop, after=after)) == found


def test_steps_that_the_input_did_not_last_for_are_told_with_the_loop():
    """Exit code 0 after a part of the plan, and no other way out of the loop."""
    record = ordinary_run().event("plan", 2, pid=TRAINER, steps=5000, source="loop").exit(60, 0)
    record.lines("guest")[0]["file"] = "/home/u/train.py"
    record.sources["/home/u/train.py"] = script(COUNTED, loop="zip(range(args.steps), loader)", after="")

    diagnosis = verdict(record)

    assert [(one.cause, one.grade, one.culprit.line) for one in diagnosis.findings] == [
        ("early-stop.input-exhausted", "supported", 3)
    ]
    assert (diagnosis.ending.kind, diagnosis.healthy) == ("stopped-early", False)
