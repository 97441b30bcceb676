"""The rare look into one step leaves nothing behind: what the script lets go is gone, and its variables are its own."""

from __future__ import annotations

import pytest

from holter.agent.observe.calls_profiled import _calls_in

from .forked_run import run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import time, weakref
import torch

class Thing:
    pass

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def batches():
    while True:
        held = Thing()
        yield held, torch.ones(8, 64)

def train():
    thing, source, rate, drawn = Thing(), batches(), 3, []
    gone = weakref.ref(thing)
    for step in range(120):
        held, x = next(source)
        drawn.append(weakref.ref(held))
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    del thing, held
    print(gone() is None, sum(ref() is not None for ref in drawn), rate, step)

train()
"""


def test_what_the_script_lets_go_is_gone_after_a_look(tmp_path):
    """Neither a function nor a waiting generator holds on to what it had during the look."""
    found = run(tmp_path, SCRIPT)

    assert found.kind("anatomy")
    assert found.out == "True 1 3 119\n"


NAMED = """
from elsewhere import train as train_elsewhere
try:
    train_elsewhere()
except ValueError as train:
    print(train)

class Trainer:
    def train(self, model, batches):
        for x in batches:
            model.forward(x)

    Trainer()
"""


def test_a_method_is_found_among_imports_and_errors_of_its_name(tmp_path):
    """Only what has a body holds calls; Python before 3.12 counts by functions, and finds the lines in the source."""
    script = tmp_path / "named.py"
    script.write_text(NAMED)
    (trainer,) = (code for code in compile(NAMED, str(script), "exec").co_consts if hasattr(code, "co_consts"))
    (train,) = (code for code in trainer.co_consts if hasattr(code, "co_consts"))

    assert list(_calls_in(train)) == [(1, "forward", 11)]
    assert list(_calls_in(trainer)) == [(0, "Trainer", 13)]
