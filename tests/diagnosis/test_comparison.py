"""Two runs side by side: what differs beyond noise, what was changed, and what is said to explain it."""

from __future__ import annotations

import io
import json
import random

import pytest
from build import GB, MB, TRAINER, memory, ordinary_run, without_memory
from test_rules import odd_record

from holter.diagnosis.comparison.compare import compare
from holter.views.compared import write_comparison

CODE = """import torch
class Images:
    def __getitem__(self, at):
        return read(at)
loader = torch.utils.data.DataLoader(Images(), batch_size=32, num_workers=4)
for x in loader:
    loss = model(x)
    loss.backward()
"""


def a_run(*, data=0.01, forward=0.03, backward=0.05, batch=32, code=CODE, workers=4, threads=2, noise=0.03, seed=1):
    """Ten steps a second and their phases, in seconds of a step; the pace wavers by so much."""
    rolled = random.Random(seed)
    record = ordinary_run()
    for line in record.timeline:
        if line["k"] == "steps":
            part = 1 + noise * rolled.uniform(-1, 1)
            line |= {"data": 10 * data * part, "forward": 10 * forward * part, "backward": 10 * backward * part}
            line |= {"sum": 10 * (data + forward + backward) * part, "batch": batch, "optimizer": 0.0, "other": 0.0}
    record.event("made", 1, pid=TRAINER, what="loader", name="DataLoader", dataset="Images", file="/w/train.py", line=5,
                 num_workers=workers, batch_size=batch)  # fmt: skip
    record.event("settings", 1, pid=TRAINER, framework="torch", intra_op=threads)
    record.sources = {"/w/train.py": code.split("\n")}
    return record.exit(60, 0)


def text(found):
    page = io.StringIO()
    write_comparison(found, page)
    return " ".join(page.getvalue().split())


def test_the_same_run_twice_differs_in_nothing():
    """The look-alike: two paces that waver, and comments that were rewritten, are no difference and no change."""
    for seed in range(20):
        found = compare(a_run(seed=seed), a_run(seed=seed + 100, noise=0.08, code="# a comment\n" + CODE))

        assert not found.differs
        assert (found.changes, found.explanations) == ((), ())
        assert "nothing differs beyond noise" in text(found)


def test_a_pace_that_wavers_much_needs_a_larger_difference():
    """Thirty per cent more are noise where each run varies by as much, and no noise where neither does."""
    wild = compare(a_run(forward=0.07, noise=0.6), a_run(noise=0.6, seed=2))
    calm = compare(a_run(forward=0.07), a_run(seed=2))

    assert (wild.differs, calm.differs) == (False, True)


def test_a_slower_loader_is_explained_by_its_workers():
    """The phase that grew leads to the setting; the line that sets it is shown and is no second suspect."""
    code = CODE.replace("num_workers=4", "num_workers=0")
    found = compare(a_run(data=0.2, workers=0, code=code), a_run(seed=2))
    (why,) = found.explanations

    assert why.grade == "supported"
    assert why.claim.startswith("waiting for data: 200 ms a step instead of 10 ms, 100 % of the difference")
    assert "num_workers of the loader (4 → 0)" in why.claim
    assert "3.1 times as slow: 3.6 steps a second, it was 11.1" in text(found)
    assert "+ loader = torch.utils.data.DataLoader(Images()" in text(found)


def test_a_changed_line_that_makes_data_explains_data_and_not_the_model():
    """A change in `__getitem__` bears on waiting for data; it is no word on a slower forward pass."""
    code = CODE.replace("read(at)", "slow(read(at))")
    data = compare(a_run(data=0.2, code=code), a_run(seed=2)).explanations[0]
    forward = compare(a_run(forward=0.2, code=code), a_run(seed=2)).explanations[0]

    assert (data.grade, "train.py:4 in __getitem__" in data.claim) == ("supported", True)
    assert (forward.grade, forward.changes) == (None, ())
    assert "nothing that the records hold explains it" in forward.claim


def test_several_suspects_are_named_and_none_is_blamed():
    """Threads and a line of the model, both changed: which of them it was, two runs do not tell."""
    code = CODE.replace("loss = model(x)", "loss = model(model(x))")
    (why,) = compare(a_run(forward=0.1, threads=1, code=code), a_run(seed=2)).explanations

    assert why.grade == "hypothesis"
    assert "threads of an operation (2 → 1)" in why.claim
    assert "train.py:7" in why.claim


def test_a_larger_batch_is_measured_by_the_sample():
    """Twice the samples in twice the time are as fast; in four times the time something else is at work."""
    found = compare(a_run(data=0.02, forward=0.06, backward=0.1, batch=64), a_run(seed=2))
    slower = compare(a_run(data=0.02, forward=0.18, backward=0.3, batch=64), a_run(seed=2))

    assert "as fast by the sample" in text(found)
    assert found.explanations[0].claim.startswith("a batch has 64 samples instead of 32")
    assert not slower.explanations[0].claim.startswith("a batch has")


def test_a_machine_that_others_use_is_told_where_the_kernel_tells():
    """The threads were ready and had no core: no line of the script is blamed for it."""
    one, two = a_run(forward=0.08, backward=0.1), a_run(seed=2)
    for record, wait in ((one, 1.5), (two, 0.02)):
        for second in range(60):
            record.sample(second, threads={"cpu": 1.0, "wait": wait, "wanting": 2.0, "wall": 1.0})
    (why,) = compare(one, two).explanations

    assert why.claim.startswith("its threads got 40 % of the CPU time they wanted, against 98 %")
    assert why.grade == "supported"


def test_memory_differs_beyond_a_tenth_and_64_mb():
    """And is explained by what bears on memory."""

    def with_peak(record, peak):
        record = without_memory(record, 0)
        for second in range(60):
            memory(record, second, peak)
        return record

    more = compare(with_peak(a_run(batch=64), 3 * GB), with_peak(a_run(seed=2), 2 * GB))
    same = compare(with_peak(a_run(), 2 * GB + 60 * MB), with_peak(a_run(seed=2), 2 * GB))
    peak = [one for one in more.explanations if one.of == "memory"]

    assert peak[0].claim.startswith("peak memory is 1.0 GB higher; samples in a batch (32 → 64)")
    assert not same.differs


def test_versions_arguments_and_the_machine_are_told_in_their_own_words():
    """What may bear on anything is named where nothing nearer is."""
    one, two = a_run(forward=0.1), a_run(seed=2)
    for record, version, words, host in (
        (one, "2.13.0", ["--wide", "--lr", "3"], "b"),
        (two, "2.12.0", ["--lr", "1"], "a"),
    ):
        record.event("adapter", 1, pid=TRAINER, framework="torch", version=version, state="on")
        record.meta |= {"command": ["/x/python", "train.py", *words], "host": host}
    found = compare(one, two)
    said = [(change.what, change.against, change.value) for change in found.changes]

    assert ("torch", "2.12.0", "2.13.0") in said
    assert ("arguments", "", "--wide") in said
    assert ("arguments", "--lr 1", "--lr 3") in said
    assert ("machine", "a", "b") in said
    assert found.explanations[0].grade == "hypothesis"


@pytest.mark.nonsense
@pytest.mark.parametrize("seed", range(60))
def test_records_of_any_kind_can_be_compared(seed):
    """However odd, hostile or empty: a comparison, as text and as JSON, and never an error."""
    found = compare(odd_record(seed), odd_record(seed + 1000))

    assert json.dumps(found.as_json(), default=str)
    assert "\x1b" not in text(found)


def test_what_a_record_says_stays_text():
    """Escapes in names, arguments and lines reach no terminal."""
    one, two = a_run(code=CODE.replace("read", "re\x1b[2Jad")), a_run(seed=2)
    one.meta |= {"id": "\x1b]0;x\x07", "command": ["python", "\x1b[31m"]}

    assert "\x1b" not in text(compare(one, two))
