"""A pass that is under way goes on in parts where the loop can't notice but by its iterations, and not where it can."""

from __future__ import annotations

import json
import linecache
import sys
from textwrap import dedent, indent
from typing import Any

import pytest

pytest.importorskip("torch")

from holter.agent.heal.counting_loop import who_counts
from holter.agent.torch.heal.loader_profile import MidEpochSwitch
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
        split.parts = split.wanted = 1
    told(name)


"""
MORE = '''
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


def accumulated_in_one_pass():
    model, loader, seen, done = net(), rows(xs(364), labels(364)), 0, []
    optimizer = Adam(model.parameters(), lr=0.01)
    optimizer.register_step_post_hook(lambda *_: done.append(1))
    for i, (x, y) in enumerate(loader):
        (F.cross_entropy(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
        seen += 1
    return model, seen, optimizer, len(done)


def left_by_count():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for i, (x, y) in enumerate(rows(xs(364), labels(364))):
        if i >= 20:
            break
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

    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in ahead(rows(xs(364), labels(364))):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def from_two_loaders():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for (x, y), (z,) in zip(rows(xs(364), labels(364)), rows(xs(364))):
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) + model(z).pow(2).mean()).backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def rate_by_the_place():
    model, loader, seen = net(), rows(xs(364), labels(364)), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for i, (x, y) in enumerate(loader):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - i / len(loader))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def in_a_generator_twice():
    def drawn(loader):
        for batch in loader:
            yield batch

    model, loader, seen = net(), rows(xs(), labels()), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for x, y in drawn(loader):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += 1
    return model, seen, optimizer


def more_and_more():
    """The parts do not fit either: more of them are asked for in the same pass."""
    model, loader, seen, done = net(), rows(xs(364), labels(364)), 0, []
    optimizer = Adam(model.parameters(), lr=0.01)
    again = lambda *_: (done.append(1), split is not None and len(done) == 9 and split.ask(2))
    optimizer.register_step_post_hook(again)
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer, len(done)


'''
HANDED_OVER = [
    "mean_loss", "sum_loss", "with_a_penalty", "ignored_labels", "masked", "loss_of_the_model", "a_smaller_last_batch",
    "dictionaries", "workers", "zero_after", "clipped_and_scheduled", "scaled", "accumulated_by_two",
    "accumulated_with_a_tail", "two_losses", "evaluated_between", "averaged", "with_its_mean_told",
    "one_long_pass", "accumulated_in_one_pass", "more_and_more",
]  # fmt: skip
FROM_THE_NEXT = ["rate_by_the_length", "in_a_generator_twice"]
LEFT_ALONE = ["left_by_count", "drawn_ahead", "from_two_loaders", "rate_by_the_place", "in_turns"]


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Run]:
    """All of them as they are, and with parts asked for after two updates."""
    text = LOOPS + ASKED + MORE + "\n".join(f"asked({name!r})" for name in [*HANDED_OVER, *FROM_THE_NEXT, *LEFT_ALONE])
    whole = run(tmp_path_factory.mktemp("whole"), text, agent=False)
    parts = run(tmp_path_factory.mktemp("parts"), text, HOLTER_HEAL="safe")
    assert whole.code == parts.code == 0, whole.err + parts.err
    assert parts.kind("guest-error") == []
    read = [{found["name"]: found for found in map(json.loads, done.out.splitlines())} for done in (whole, parts)]
    return read[0], read[1], parts


@pytest.mark.parametrize("name", HANDED_OVER)
def test_the_updates_are_those_of_whole_batches(loops: tuple[Any, Any, Run], name: str) -> None:
    """Some of them were made with whole batches and the rest in parts, within one pass."""
    whole, parts = loops[0][name], loops[1][name]

    assert parts["weights"] == pytest.approx(whole["weights"], rel=1e-9, abs=1e-12)
    assert (parts["rate"], parts["more"]) == (whole["rate"], whole["more"])
    assert whole["seen"] < parts["seen"]


@pytest.mark.parametrize("name", FROM_THE_NEXT)
def test_what_would_only_be_noticed_in_the_midst_of_a_pass_waits_for_the_next(
    loops: tuple[Any, Any, Run], name: str
) -> None:
    """The first of two passes of five batches as they came, the second in parts."""
    whole, parts = loops[0][name], loops[1][name]

    assert parts["weights"] == pytest.approx(whole["weights"], rel=1e-9, abs=1e-12)
    assert (whole["seen"], parts["seen"]) == (10, 5 + 5 * PARTS)


def test_a_single_pass_is_handed_over_after_the_first_update_that_was_watched(loops: tuple[Any, Any, Run]) -> None:
    """31 batches, the last of four samples: three as they came, 27 in three parts and the last as well."""
    assert loops[1]["one_long_pass"]["seen"] == 4 + 27 * 3


def test_more_parts_may_follow_in_the_same_pass(loops: tuple[Any, Any, Run]) -> None:
    acts = [act["text"] for act in loops[2].kind("intervention")]

    assert "each batch of 12 is handed out in 6 parts, with one update for all" in acts


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_loop_that_could_notice_is_handed_whole_batches(loops: tuple[Any, Any, Run], name: str) -> None:
    assert loops[0][name] == loops[1][name]


def test_the_reason_is_told(loops: tuple[Any, Any, Run]) -> None:
    reasons = [event["because"] for event in loops[2].kind("declined")]

    assert len(reasons) == 1
    assert reasons[0].startswith("the loop goes by its count of iterations (`i`, line")
    assert reasons[0].endswith("it goes on in place, which takes longer")


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


def reason(body: str, *, only_faster: bool = True, midway: bool = False) -> str:
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
        found.append(who_counts(sys._getframe(1), only_faster, midway))
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


def test_the_place_in_a_pass_may_be_computed_with_from_its_beginning_on() -> None:
    """The length counts the parts too; in the midst of a pass the place would jump."""
    body = "rate = 0.1 * (1 - i / len(loader))"

    assert reason(body) == ""
    assert "goes by its count" in reason(body, midway=True)


@pytest.mark.parametrize(
    ("order", "ready"),
    [("dbsdbsd", True), ("dbbsdbbsd", True), ("dbssdbsd", True), ("dbdbsdbdbsd", True), ("dbs d", False),
     ("ddbsddbsd", False), ("dbsbsdbsbsd", False), ("dbsdbd", False), ("dbsdbseed", False)],
)  # fmt: skip
def test_a_batch_is_the_first_in_parts_after_one_regular_update(order: str, ready: bool) -> None:
    """d: draws, b: backward, s: update, e: draws from another loader."""
    handover, mine, other = MidEpochSwitch(), {1}, {2}
    does = {
        "d": lambda: handover.drew(mine), "e": lambda: handover.drew(other), " ": lambda: None,
        "b": handover.backward, "s": handover.stepped,
    }  # fmt: skip

    assert [does[one]() for one in order][-1] is ready
