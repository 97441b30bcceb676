"""Where a value comes from, what was left on, and who fills a library's object: read off the script alone."""

from __future__ import annotations

import ast
import textwrap

import pytest

from holter.diagnosis.leak.object_calls import call_on, is_reset, object_names
from holter.diagnosis.leak.rules.native import left_on
from holter.source.provenance import provenance

RATIOS = """
import numpy as np

def features(shown, clicked):
    rate = clicked / shown
    return np.stack([rate, shown], 1)

def unrelated(a, b):
    return a / b

shown, clicked = read("log.csv")
x = features(shown, clicked)
loader = DataLoader(TensorDataset(x))
for epoch in range(3):
    for (batch,) in loader:
        step(batch)
"""


def lines_of(text: str) -> list[str]:
    return textwrap.dedent(text).split("\n")


@pytest.mark.parametrize("name", ["x", "loader", "batch"])
def test_a_value_is_followed_back_through_names_loops_and_functions(name: str) -> None:
    """To the function that computes it and to what is read, and not to what it has nothing to do with."""
    found = provenance(lines_of(RATIOS), name)
    statements = {ast.unparse(node).split("\n")[0] for node in found}

    assert "def features(shown, clicked):" in statements
    assert "shown, clicked = read('log.csv')" in statements
    assert "def unrelated(a, b):" not in statements


def test_what_is_appended_to_a_list_is_a_part_of_it() -> None:
    """Rows that are gathered one by one."""
    found = provenance(lines_of("rows = []\nfor r in table:\n    rows.append(clean(r))\nx = array(rows)"), "x")

    assert any("rows.append" in ast.unparse(node) for node in found)


@pytest.mark.parametrize("name", ["", "input 0", "nothing"])
def test_a_name_that_is_no_variable_comes_from_nowhere(name: str) -> None:
    """Inputs are called by their place where they have no name."""
    assert provenance(lines_of(RATIOS), name) == []


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("from torch.profiler import profile\nwith profile(activities=a) as prof:\n    train()", 2),
        ("import torch\nwith torch.profiler.profile() as p:\n    train()", 2),
        ("torch.cuda.memory._record_memory_history()", 1),
        ("import tracemalloc\ntracemalloc.start(25)", 2),
        ("tf.profiler.experimental.start('logs')", 1),
    ],
)
def test_a_recorder_without_a_bound_is_found(code: str, line: int) -> None:
    """Profilers and histories keep all that they see."""
    found = left_on(code.split("\n"))

    assert found is not None
    assert found.line == line


@pytest.mark.parametrize(
    "code",
    [
        "from torch.profiler import profile\nwith profile(schedule=s) as prof:\n    train()",
        "torch.cuda.memory._record_memory_history(max_entries=1000)",
        "torch.cuda.memory._record_memory_history(enabled=None)",
        "def profile(x): ...\nprofile(1)",
        "timer.start()",
        "(",
    ],
)
def test_a_recorder_with_a_bound_or_none_at_all_is_not(code: str) -> None:
    """Nor is a function of the script's own that is called alike."""
    assert left_on(code.split("\n")) is None


METRIC = """
class Net(LightningModule):
    def __init__(self):
        self.auroc = BinaryAUROC().to("cpu")

    def training_step(self, batch, n):
        self.auroc.update(scores, target)
        print(self.auroc.compute())
"""


def test_the_line_that_hands_things_to_an_object_is_found_by_the_objects_name() -> None:
    """What the object holds has a name that stands nowhere in the script."""
    assert object_names("model._modules['auroc'].target") == ["auroc", "model"]
    assert call_on(lines_of(METRIC), "auroc") == 7
    assert not is_reset(lines_of(METRIC), "auroc")
    assert is_reset(lines_of(METRIC + "\n        self.auroc.reset()"), "auroc")


def test_an_object_that_is_only_asked_is_handed_nothing() -> None:
    """Nor is one of another name."""
    assert call_on(lines_of("m.compute(1)\nother.update(2)"), "m") is None
