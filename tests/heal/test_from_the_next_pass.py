"""A loader hands out chunks from its next pass on where the loop can't notice but by its iterations, and not else."""

from __future__ import annotations

import json
import linecache
import sys
from textwrap import dedent, indent
from typing import Any

import pytest

pytest.importorskip("torch")

from holter.agent.heal.counting_loop import who_counts
from tests.agent.agent_run import Run, run
from tests.heal.loader_loops import LOOPS

pytestmark = pytest.mark.torch

PARTS = 3
# After the second update of each loop parts are asked for, as a model does that computes most of a batch twice.
ASKED = f"""
import gc
from torch.optim.optimizer import register_optimizer_step_post_hook
split = next((one for one in gc.get_objects() if type(one).__name__ == "LoaderSplit"), None)
updates = 0


def ask(*_):
    global updates
    updates += 1
    if split is not None and updates == 2:
        split.ask({PARTS})


register_optimizer_step_post_hook(ask)


def asked(name):
    global updates
    updates = 0
    if split is not None:
        split.chunks = split.wanted = 1
    told(name)


"""
MORE = """
def one_long_pass():
    model, loader, seen, lengths = net(), rows(xs(364), labels(364)), 0, []
    optimizer = Adam(model.parameters(), lr=0.01)
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=31)
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
        seen += 1
        if i % 10 == 0:
            print("", end="")
    return model, seen, optimizer, schedule.last_epoch


def left_by_count():
    model, seen, loader = net(), 0, rows(xs(), labels())
    optimizer = SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for i, (x, y) in enumerate(loader):
            if i >= 4:
                break
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += 1
    return model, seen, optimizer


def warmed_up_by_place():
    model, seen, loader = net(), 0, rows(xs(), labels())
    optimizer = SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for i, (x, y) in enumerate(loader):
            optimizer.param_groups[0]["lr"] = min(0.05, 0.01 * i)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += 1
    return model, seen, optimizer


def drawn_ahead():
    def ahead(loader):
        held = None
        for batch in loader:
            if held is not None:
                yield held
            held = batch
        yield held

    model, seen, loader = net(), 0, rows(xs(), labels())
    optimizer = SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for x, y in ahead(loader):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += 1
    return model, seen, optimizer


"""
FROM_THE_NEXT = [
    "mean_loss", "sum_loss", "with_a_penalty", "ignored_labels", "masked", "loss_of_the_model", "a_smaller_last_batch",
    "dictionaries", "workers", "zero_after", "clipped_and_scheduled", "scaled", "accumulated_by_two",
    "accumulated_with_a_tail", "evaluated_between", "averaged", "with_its_mean_told", "rate_by_the_length",
]  # fmt: skip
AS_THEY_CAME = ["one_long_pass", "two_losses", "two_loaders", "in_turns", "in_a_generator"]  # a single pass
LEFT_ALONE = {
    "left_by_count": "the loop goes by its count of iterations (`i`, line",
    "warmed_up_by_place": "the loop goes by its count of iterations (`i`, line",
    "drawn_ahead": "the batches pass through `ahead`, which may hold one back",
}


NAMES = [*FROM_THE_NEXT, *AS_THEY_CAME, *LEFT_ALONE]


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Run]:
    """All of them as they are, and with parts asked for after two updates."""
    text = LOOPS + ASKED + MORE + "\n".join(f"asked({name!r})" for name in NAMES)
    whole = run(tmp_path_factory.mktemp("whole"), text, agent=False)
    parts = run(tmp_path_factory.mktemp("parts"), text, HOLTER_HEAL="safe")
    assert whole.code == parts.code == 0, whole.err + parts.err
    assert parts.kind("guest-error") == []
    read = [{found["name"]: found for found in map(json.loads, done.out.splitlines())} for done in (whole, parts)]
    return read[0], read[1], parts


@pytest.mark.parametrize("name", FROM_THE_NEXT)
def test_the_updates_are_those_of_whole_batches(loops: tuple[Any, Any, Run], name: str) -> None:
    """Some of them were made with whole batches, and those of the passes after it in chunks."""
    whole, parts = loops[0][name], loops[1][name]

    assert parts["weights"] == pytest.approx(whole["weights"], rel=1e-9, abs=1e-12)
    assert (parts["rate"], parts["more"]) == (whole["rate"], whole["more"])
    assert whole["seen"] < parts["seen"]


def test_the_first_pass_is_as_it_came_and_the_next_in_parts(loops: tuple[Any, Any, Run]) -> None:
    """Two passes of five batches."""
    assert (loops[0]["mean_loss"]["seen"], loops[1]["mean_loss"]["seen"]) == (10, 5 + 5 * PARTS)


@pytest.mark.parametrize("name", AS_THEY_CAME)
def test_a_pass_that_is_under_way_goes_on_as_it_is(loops: tuple[Any, Any, Run], name: str) -> None:
    """Where there is no other one, all of it is whole batches, split in place."""
    assert loops[0][name] == loops[1][name]


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_loop_that_could_notice_is_handed_whole_batches(loops: tuple[Any, Any, Run], name: str) -> None:
    assert loops[0][name] == loops[1][name]


def test_the_reason_is_told(loops: tuple[Any, Any, Run]) -> None:
    reasons = [event["because"] for event in loops[2].kind("declined")]

    assert len(reasons) == len(LEFT_ALONE), reasons
    for reason, wanted in zip(reasons, LEFT_ALONE.values(), strict=True):
        assert reason.startswith(wanted)
        assert reason.endswith("it goes on in place, which takes longer")


HARMLESS = {
    "told": "print(f'{i}: {loss}')",
    "logged": "writer.add_scalar('loss', loss, i)",
    "every so many": "if i % 100 == 0: evaluate()",
    "accumulated": "if (i + 1) % 4 == 0 or i + 1 == len(loader): step()",
    "counted for later": "seen += 1",
    "ends at no number": "if torch.isnan(loss): break",
    "a search of its own": "for word in words:\n    if word: break",
    "a function of its own": "def closure(): return loss",
}
HARMFUL = {
    "ends at a count": ("if i > 10: break", "goes by its count of iterations (`i`"),
    "ends at a time": ("if time.time() > until: return", "may be left before its end"),
    "goes by the count": ("if i == 500: unfreeze()", "goes by its count of iterations (`i`"),
    "warms up": ("beta = min(1.0, i / 1000)", "goes by its count of iterations (`i`"),
    "another's count": ("self.step += 1\nrate = schedule(self.step)", "goes by its count of iterations (`self.step`"),
    "handed on": ("train_step(x, i)", "goes by its count of iterations (`i`"),
}


def reason(body: str, *, only_faster: bool = True) -> str:
    """What is said of a loop with this in it; the frame stands in the line that draws."""
    text = "def train(loader, now):\n    for i, x in enumerate(loader):\n        now()\n" + indent(
        dedent(body), " " * 8
    )
    name = "/home/someone/train.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": "__main__"}
    found: list[str] = []

    class Seen(Exception):
        pass

    def look() -> None:
        found.append(who_counts(sys._getframe(1), only_faster))
        raise Seen

    exec(compile(text, name, "exec"), names)
    with pytest.raises(Seen):
        names["train"]([1], look)
    del linecache.cache[name]
    return found[0]


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS)
def test_what_hangs_on_no_count_is_no_reason(body: str) -> None:
    assert reason(body) == ""


@pytest.mark.parametrize(("body", "wanted"), HARMFUL.values(), ids=HARMFUL)
def test_what_hangs_on_a_count_is_one(body: str, wanted: str) -> None:
    """Unless the run would have died without: then the loop is told of at its end."""
    assert wanted in reason(body)
    assert reason(body, only_faster=False) == ""


def test_the_place_in_a_pass_may_be_computed_with() -> None:
    """The length counts the parts too."""
    assert reason("rate = 0.1 * (1 - i / len(loader))") == ""
