"""The look at the first loss that is non-finite: what it finds, and that the training never notices it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_run import Run
from tests.agent.forked_run import run
from tests.needs import needs

torch_only = pytest.mark.torch

# Dropout, batch norm, a generator of NumPy's and a scheduler: what a careless second pass would move on.
TRAIN = """
    import random, numpy, torch
    from torch import nn
    torch.manual_seed(3); random.seed(3); numpy.random.seed(3)

    class Normalise(nn.Module):
        def forward(self, x):
            return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)  # here

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Normalise()
            self.first = nn.Linear(8, 16)
            self.stats = nn.BatchNorm1d(16)
            self.drop = nn.Dropout(0.2)
            self.last = nn.Linear(16, 1)

        def forward(self, x):
            return self.last(self.drop(torch.relu(self.stats(self.first(self.norm(x))))))

    x = torch.rand(64, 8)
    x[37] = 0.5
    y = x.sum(1, keepdim=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(x, y)
    for epoch in range(2):
        for a, b in torch.utils.data.DataLoader(data, batch_size=8, shuffle=SHUFFLE):
            a = a + 0.0
            prediction = model(a)
            loss = nn.functional.mse_loss(prediction, b)
            optimizer.zero_grad()
            loss.backward()
            if torch.isfinite(loss):
                optimizer.step()
            print(repr(loss.item()), random.random(), numpy.random.rand(), torch.rand(1).item())
    print([p.double().sum().item() for p in model.parameters()], [b.double().sum().item() for b in model.buffers()])
"""


def look(done: Run) -> dict[str, Any]:
    """The one look of a run, which went by without an error of ours."""
    assert done.kind("guest-error") == [], done.kind("guest-error")
    found = done.kind("nan")
    assert len(found) == 1, found
    return found[0]


@torch_only
@pytest.mark.parametrize("shuffle", ["False", "True"])
def test_weights_buffers_and_random_streams_are_the_same_after_a_look(tmp_path: Path, shuffle: str) -> None:
    """A look beside dropout and batch norm changes no bit of what comes after it."""
    pytest.importorskip("torch")
    script = TRAIN.replace("SHUFFLE", shuffle)
    watched, plain = run(tmp_path / "a", script), run(tmp_path / "b", script, agent=False)

    assert watched.code == plain.code == 0, watched.err
    assert watched.out == plain.out
    assert watched.err == plain.err
    found = watched.kind("nan")[0]
    assert found["what"] == "loss"
    # Made before the first operation with a gradient: of that the graph keeps nothing but that it came in.
    assert "op" not in found
    assert found["outside"] is True
    assert found["params"]["bad"] == 0
    assert len(found["losses"]) == found["step"] - 1


IMPURE = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 1)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            print("forward", self.calls)
            return torch.log(self.lin(x) * 0)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@torch_only
def test_a_forward_that_prints_or_counts_is_never_run_again(tmp_path: Path) -> None:
    """The graph alone then tells the operation; what the script prints is what it always printed."""
    pytest.importorskip("torch")
    watched, plain = run(tmp_path / "a", IMPURE), run(tmp_path / "b", IMPURE, agent=False)
    found = look(watched)

    assert watched.out == plain.out
    assert (found["op"], found["edge"], found["via"]) == ("log", "log of 0", "graph")
    assert found["line"] == 15


@torch_only
def test_a_bad_sample_is_named_by_its_index_in_the_dataset_even_with_workers(tmp_path: Path) -> None:
    """The loader's own indices say which sample of a shuffled dataset it was."""
    pytest.importorskip("torch")
    script = """
        import torch
        from torch import nn
        x = torch.randn(40, 3); x[23, 1] = float("nan")
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x), batch_size=8, shuffle=True, num_workers=2)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for (batch,) in loader:
            loss = model(batch).pow(2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
    """
    found = look(run(tmp_path, script))

    assert found["what"] == "input"
    assert (found["inputs"]["index"], found["inputs"]["bad"]) == (23, "nan")


@torch_only
def test_a_gradient_that_is_no_number_is_seen_at_its_own_step(tmp_path: Path) -> None:
    """The slope of a root at zero: the loss of that step is still a number."""
    pytest.importorskip("torch")
    script = """
        import torch
        from torch import nn
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            x = torch.zeros(2, 3) if step == 3 else torch.ones(2, 3)
            out = nn.functional.linear(x, model.weight)
            loss = torch.sqrt((out * out).sum(1)).mean() + model.bias.sum() * 0
            optimizer.zero_grad(); loss.backward(); optimizer.step()
    """
    found = look(run(tmp_path, script))

    assert found["step"] == 4
    assert found["what"] == "gradient" or (found["what"] == "parameter" and found["updated"])
    assert [(slope["op"], slope["lines"][0]["line"]) for slope in found["slopes"]] == [("sqrt", 9)]


@torch_only
@pytest.mark.parametrize("end", ['raise ValueError("nan loss")', "import sys; sys.exit(3)"])
def test_a_script_that_checks_its_loss_before_backward_is_looked_at_when_it_ends(tmp_path: Path, end: str) -> None:
    """The loss and its graph are still in the frames that the exception, or the call of exit, holds."""
    pytest.importorskip("torch")
    script = f"""
        import torch
        from torch import nn
        def main():
            model = nn.Linear(3, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for step in range(6):
                p = torch.sigmoid(model(torch.ones(2, 3))) * (step < 4)
                loss = -torch.log(p).mean()
                if not torch.isfinite(loss):
                    {end}
                optimizer.zero_grad(); loss.backward(); optimizer.step()
        main()
    """
    found = look(run(tmp_path, script))

    assert (found["step"], found["op"], found["line"]) == (5, "log", 9)


@torch_only
def test_what_only_looks_like_a_nan_is_passed_over(tmp_path: Path) -> None:
    """Masks, best losses that begin at infinity, metrics that are NaN, and a scaler that skips its first steps."""
    pytest.importorskip("torch")
    script = """
        import torch
        from torch import nn
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 120, growth_interval=100000)
        best, unused = float("inf"), torch.full((4,), float("nan"))
        mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
        for step in range(60):
            x = torch.randn(4, 4)
            loss = (torch.softmax(model(x) + mask, 1) - x).pow(2).mean() * 1e10
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer); scaler.update()
            best = min(best, loss.item())
            metric = (x[:0].sum() / 0).item()
    """

    assert run(tmp_path, script).kind("nan") == []


@torch_only
def test_a_loss_that_recovers_says_so(tmp_path: Path) -> None:
    """One infinite loss whose update is left out: the next is a number, and an event tells it."""
    pytest.importorskip("torch")
    script = """
        import torch
        from torch import nn
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            loss = model(torch.ones(2, 3)).pow(2).mean() / (step != 2)
            optimizer.zero_grad(); loss.backward()
            if torch.isfinite(loss): optimizer.step()
    """
    done = run(tmp_path, script)

    assert look(done)["step"] == 3
    assert len(done.kind("nan-over")) == 1


ADJACENCY = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 2))

        def forward(self, x, adj):
            support = torch.mm(x, self.weight)
            return torch.mm(GIVEN, support)

    def sample(step):
        adj = torch.eye(3) * (1.0 if step < 30 else 0.0)
        return adj * adj.sum(1).pow(-1.0)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(40):
        loss = net(torch.ones(3, 4), sample(step)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@torch_only
@pytest.mark.parametrize("given", ["adj", "adj * self.weight.sum()"])
def test_what_came_in_from_outside_is_not_laid_on_the_operation_that_met_it(tmp_path: Path, given: str) -> None:
    """Of two inputs of a product one was NaN, made where no gradient goes: the maker of the other is not to blame."""
    found = look(run(tmp_path, ADJACENCY.replace("GIVEN", given)))

    assert found.get("inputs", {}).get("bad") == "nan" or found.get("outside") is True
    assert found.get("op") in (None, "mul")


HALF_SUM = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(6.0).log())

        def forward(self, x):
            e = torch.exp((x * self.scale.exp()).half() MASKED)
            share = e[:, 0] / e.sum(dim=1)  # here
            return -torch.log(share.float()).mean()

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(60):
        loss = model(torch.full((4, 16), 1.0 if step < 40 else LATER))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@torch_only
def test_a_sum_that_overflows_in_half_precision_is_the_operation_and_not_the_log_behind_it(tmp_path: Path) -> None:
    """16 times 49,000 has no number in float16; neither the log that follows nor the one in `__init__` is to blame."""
    found = look(run(tmp_path, HALF_SUM.replace("MASKED", "").replace("LATER", "1.8")))

    assert (found["op"], found["op_dtype"], found["edge"]) == ("sum", "float16", "sum overflows")
    assert "# here" in found["code"]


@torch_only
def test_a_mask_of_minus_infinity_in_half_precision_is_no_overflow(tmp_path: Path) -> None:
    """What was put there on purpose is not what went wrong: the log of the share of nothing is."""
    masked = "+ torch.where(torch.arange(16) == 0, -torch.inf if step >= 40 else 0.0, 0.0).half()"
    found = look(run(tmp_path, HALF_SUM.replace("MASKED", masked).replace("LATER", "1.0")))

    assert (found["op"], found["edge"]) == ("log", "log of 0")


@torch_only
def test_checkpointed_activations_are_not_computed_for_us(tmp_path: Path) -> None:
    """Reading a saved tensor would run the user's function again: it is not read."""
    pytest.importorskip("torch")
    script = """
        import torch
        from torch import nn
        from torch.utils.checkpoint import checkpoint
        def part(x):
            print("part")
            return torch.log(model(x) * 0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(2):
            loss = checkpoint(part, torch.ones(2, 3), use_reentrant=False).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
    """
    watched, plain = run(tmp_path / "a", script), run(tmp_path / "b", script, agent=False)

    assert watched.out == plain.out
    assert look(watched)["loss"] in ("nan", "-inf")


KERAS = """
    import keras, numpy as np
    keras.utils.set_random_seed(1)
    x = np.random.normal(size=(256, 6)).astype("float32"); y = x.sum(1, keepdims=True)
    BAD
    layers = [keras.layers.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss="mse")
    history = model.fit(SOURCE, epochs=2, verbose=0)
    print(history.history, np.random.rand(), keras.random.uniform((1,)))
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "source", ["x, y, batch_size=16", "tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64).batch(16)"]
)
def test_keras_names_the_sample_and_trains_on_unchanged(tmp_path: Path, source: str) -> None:
    """Arrays given to fit and the tensors behind a dataset are read; the dataset's shuffling does not move on."""
    needs("tensorflow")
    script = KERAS.replace("BAD", "import tensorflow as tf; x[123, 4] = np.inf").replace("RATE", "0.01")
    script = script.replace("SOURCE", source)
    watched, plain = run(tmp_path / "a", script), run(tmp_path / "b", script, agent=False)
    found = look(watched)

    assert watched.out == plain.out
    assert (found["what"], found["inputs"]["row"], found["inputs"]["bad"]) == ("input", 123, "inf")


@pytest.mark.tensorflow
def test_keras_tells_each_batchs_loss_from_the_running_mean(tmp_path: Path) -> None:
    """A rate that is far too high: the losses before the first NaN grow by orders of magnitude."""
    needs("tensorflow")
    script = KERAS.replace("BAD", "x *= 30").replace("RATE", "50.0").replace("tanh", "relu")
    found = look(run(tmp_path, script.replace("SOURCE", "x, y, batch_size=16")))

    assert found["losses"][-1] > 1e3 * found["losses"][0]
    assert found["lr"] == 50.0
    assert found["looked_at"] == 2


@pytest.mark.tensorflow
def test_an_eager_tape_is_looked_at_before_its_update(tmp_path: Path) -> None:
    """The weights are still numbers, and none of the user's lines is run again."""
    needs("tensorflow")
    script = """
        import tensorflow as tf
        w = tf.Variable(tf.ones((3, 1)))
        optimizer = tf.keras.optimizers.SGD(0.01)
        def loss_of(p):
            return -tf.reduce_mean(tf.math.log(p))
        for step in range(6):
            x = tf.ones((4, 3))
            with tf.GradientTape() as tape:
                p = tf.sigmoid(x @ w) * float(step < 4)
                loss = loss_of(p)
            gradients = tape.gradient(loss, [w])
            optimizer.apply_gradients(zip(gradients, [w]))
            print(float(loss), float(tf.reduce_sum(w)))
    """
    watched, plain = run(tmp_path / "a", script), run(tmp_path / "b", script, agent=False)
    found = look(watched)

    assert watched.out == plain.out
    assert (found["step"], found["what"]) == (5, "loss")
    assert found["params"]["bad"] == 0


PROFILED = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
with torch.profiler.profile() as seen:
    for step in range(200):
        x = torch.randn(16, 8) * (1e4 if step > 100 and step % 20 == 0 else 1)
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(sorted({event.key for event in seen.key_averages() if event.key.startswith("aten::")}))
"""


@torch_only
def test_a_look_at_a_loss_far_above_the_rest_is_seen_by_no_profiler(tmp_path: Path) -> None:
    """The operations that a profiler counts are those of the script alone."""
    watched = run(tmp_path / "watched", PROFILED)

    assert "aten::mean" in watched.out
    assert not re.search("aten::(aminmax|amax|argmax|isfinite|isnan)", watched.out)
