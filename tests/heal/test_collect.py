"""Objects that only refer to each other are let go before memory runs out; whatever the script can reach stays."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_run import run
from tests.heal.conftest import Three
from tests.needs import needs

# A model that refers to itself, and an optimizer: 32 MB for each pass, of which Python's own collector sees a handful.
TORCH = """
    import gc, time, torch

    gc.disable()
    torch.set_num_threads(1)
    torch.manual_seed(0)


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1600, 1600)
            self.call = self.forward

        def forward(self, x):
            return self.layer(x)


    for fold in range(20):
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
        for step in range(3):
            loss = net(torch.randn(8, 1600)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.15)
    print("loss", repr(loss.item()))
    """
KERAS = """
    import os
    os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
    import keras, numpy as np

    keras.utils.set_random_seed(0)
    x, y = np.random.rand(32, 500).astype("float32"), np.random.rand(32, 1).astype("float32")
    for fold in range(9):
        model = keras.Sequential([keras.layers.Dense(6000, activation="relu"), keras.layers.Dense(500)])
        model.compile("adam", "mse")
        past = model.fit(x, y, epochs=1, batch_size=8, verbose=0)
    print("loss", repr(past.history["loss"][-1]), model.name)
    """


@pytest.mark.parametrize(
    ("framework", "text", "room"),
    [("torch", TORCH, 550_000_000), ("keras", KERAS, 930_000_000)],
    ids=["models in cycles", "models that a registry holds"],
)
def test_models_that_are_made_one_after_the_other_find_room(
    three_ways: Callable[[str, int], Three], framework: str, text: str, room: int
) -> None:
    """Killed without --heal; with it the run finishes in one go, with the loss and the names that it has without a
    limit."""
    needs(framework)
    dies, _free, healed = three_ways(text, room)

    assert dies.code in (137, -9, 139)  # TensorFlow may crash where the kernel refuses it memory
    acts = [(act["act"], act["keeps"]) for act in healed.verdict()["interventions"]]
    assert acts == [("collect", "exact")]
    assert "unreferenced objects were collected" in healed.err


def test_the_split_in_place_holds_no_model_that_is_gone() -> None:
    """What is known of a model goes with it, and so do its weights."""
    torch = pytest.importorskip("torch")
    from holter.agent.torch.heal.split import Split
    from tests.heal.test_split_batch import Agent

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    split = Split(Agent(), torch, lambda: False)
    model = Net()
    split.watch([model])
    model(torch.randn(4, 8)).sum().backward()
    weight = weakref.ref(model.layer.weight)
    known = len(split.states)
    del model
    gc.collect()

    assert (known, len(split.states), weight()) == (1, 0, None)


def test_without_pressure_nothing_is_collected(tmp_path: Path) -> None:
    """Collecting takes time, and a script may have turned it off for that."""
    pytest.importorskip("torch")
    text = TORCH.replace("range(20)", "range(4)") + "print('kept', sum(type(one) is Net for one in gc.get_objects()))\n"
    done = run(tmp_path, text.replace("\n    ", "\n"), HOLTER_HEAL="1")

    assert done.code == 0, done.err
    assert "kept 4" in done.out
    assert done.kind("intervention") == []


class Copy:
    """A copy of ours."""

    held = True

    def release(self) -> None:
        self.held = False


def test_near_the_limit_no_copy_of_ours_is_held_or_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 400 of 1,000 MB left there is room for one; with 200 left what there is belongs to the training."""
    from holter.agent.heal import copy_budget as budget
    from holter.agent.heal.collect import Collect
    from tests.heal.test_split_batch import Agent

    collect, copy = Collect(Agent()), Copy()
    budget.copies.add(copy)
    seen = []
    for left in (400_000_000, 200_000_000):
        monkeypatch.setattr(budget.host_memory, "left", lambda left=left: left)
        monkeypatch.setattr(budget, "held", lambda left=left: 1_000_000_000 - left)
        collect.look()
        seen.append((copy.held, budget.allowance()))

    assert seen == [(True, 40_000_000), (False, 0)]


def test_a_gradient_is_found_as_long_as_its_graph_lives(tmp_path: Path) -> None:
    """Also one that is asked for only after the registry has let go; with the graph its entry is gone."""
    needs("tensorflow")
    script = """
        import gc, sys
        import tensorflow as tf
        from tensorflow.python.framework import ops

        @tf.custom_gradient
        def doubled(x):
            return 2.0 * x, lambda given: 5.0 * given

        def make():
            weight = tf.Variable(3.0)

            @tf.function
            def function(x):
                return doubled(x * weight)

            return function

        kept, dropped = make(), make()
        one = tf.constant(1.0)
        print(float(kept(one)), float(dropped(one)))
        count = lambda: sum(name.startswith("CustomGradient-") for name in ops.gradient_registry.list())
        before = count()
        from _holter.agent.heal.collect import let_go
        print("moved", let_go(), let_go())
        del dropped
        gc.collect()
        with tf.GradientTape() as tape:
            tape.watch(one)
            out = kept(one)
        print("gradient", float(tape.gradient(out, one)), "entries", before - count())
        """
    done = run(tmp_path, script, HOLTER_HEAL="1")

    assert done.code == 0, done.err
    assert done.out.splitlines() == ["6.0 6.0", "moved 2 0", "gradient 15.0 entries 1"]
