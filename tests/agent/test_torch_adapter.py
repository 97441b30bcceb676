"""PyTorch under the agent: the same numbers, and steps, phases, losses and lines in the record."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.agent import agent_run
from tests.agent.agent_run import Run
from tests.agent.forked_run import run
from tests.needs import needs

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRAIN = """
    import time, torch
    from torch import nn
    torch.manual_seed(3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 16)
            self.drop = nn.Dropout(0.2)
            self.last = nn.Linear(16, 1)

        def forward(self, x):
            time.sleep(0.01)
            return self.last(self.drop(torch.relu(self.first(x))))

    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 40
        def __getitem__(self, i):
            time.sleep(0.002)
            return torch.full((8,), float(i)) / 40, torch.tensor([i / 40])

    def validate():
        model.eval()
        with torch.no_grad():
            for x, y in loader:
                model(x)
        model.train()

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(Slow(), batch_size=10, shuffle=True)
    epochs = 3
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
        validate()
        torch.save(model.state_dict(), "last.pt")
    print(repr(torch.rand(1).item()))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return agent_run.run(tmp_path_factory.mktemp("watched"), TRAIN)


def test_losses_and_random_streams_are_identical_to_the_last_bit(watched: Run, tmp_path: Path) -> None:
    """Every loss, and the random number after them, is what it is without the agent; nothing else is printed."""
    plain = agent_run.run(tmp_path, TRAIN, agent=False)

    assert watched.code == plain.code == 0
    assert watched.out == plain.out
    assert watched.err == plain.err


def test_every_step_is_counted(watched: Run) -> None:
    """3 epochs of 4 batches are 12 steps, with the loss and the rate of the last one."""
    assert watched.words is not None
    last = watched.slots[-1]

    assert (watched.words[4], watched.words[5]) == (12, 3)
    assert sum(slot.count for slot in watched.slots) == 12
    assert last.loss == pytest.approx(float(watched.out.splitlines()[-2]))
    assert (last.lr, last.batch, last.epoch) == (0.05, 10, 3)


def test_time_is_accounted_to_the_phase_that_took_it(watched: Run) -> None:
    """Slow samples are data wait, the sleeping model is forward, evaluation and saving are neither."""
    slots = watched.slots[1:]
    spent = {name: sum(slot.spent[name] for slot in slots) for name in slots[0].spent}

    assert spent["data"] >= 11 * 10 * 0.002
    assert spent["forward"] >= 11 * 0.01
    assert spent["validation"] >= 2 * (40 * 0.002 + 4 * 0.01)
    assert spent["checkpoint"] > 0
    assert spent["forward"] < spent["data"]


def test_the_plan_is_read_off_the_loop(watched: Run) -> None:
    """`for epoch in range(epochs)` around a loader of 4 batches is a plan of 3 epochs."""
    (plan,) = watched.kind("plan")

    assert (plan["epochs"], plan["steps_per_epoch"], plan["source"]) == (3, 4, "loop")


@pytest.mark.parametrize(
    ("loops", "steps"),
    [
        (["for episode in range(500):", "    while running():", "        step()"], None),
        (["for epoch in range(500):", "    for part in parts():", "        step()"], None),
        (["for epoch in range(20):", "    for part in range(40):", "        step()"], 800),
        (["done, most = 0, 1000", "while done < most:", "    step()", "    done += 1"], 1000),
        (["rows = 0", "while rows < 9000:", "    step()", "    rows += 32"], None),
    ],
)
def test_a_loop_of_unknown_length_makes_no_plan(tmp_path: Path, loops: list[str], steps: int | None) -> None:
    """How many steps an episode has can't be read off the script, so no number of steps is made up; a `while` has one
    where its counter was seen to go with the steps."""
    begin = """
        import time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ends = time.monotonic() + 2.5
        def running(): return time.monotonic() < ends
        def parts():
            while running(): yield 1
        def step():
            if not running(): raise SystemExit
            time.sleep(0.01)
            optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    """
    script = textwrap.dedent(begin) + "\n".join(loops) + "\n"
    done = run(tmp_path, script)

    assert done.kind("guest-error") == []
    assert [plan["steps"] for plan in done.kind("plan") if plan["steps"]] == ([steps] if steps else [])


def test_the_lines_that_made_things_are_known(watched: Run) -> None:
    """The model, not its layers; the optimizer; the loader: each with the user's own line."""
    made = {(event["what"], event["name"], event["code"]) for event in watched.kind("made")}

    assert made == {
        ("model", "Net", "model = Net()"),
        ("optimizer", "Adam", "optimizer = torch.optim.Adam(model.parameters(), lr=0.05)"),
        ("loader", "DataLoader", "loader = torch.utils.data.DataLoader(Slow(), batch_size=10, shuffle=True)"),
    }


def test_what_the_framework_computes_with_is_told(tmp_path: Path) -> None:
    """Threads, the device of the weights, and the GPUs that the build knows."""
    text = """
        import time, torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        print(torch.version.cuda)
    """
    found = run(tmp_path, text)

    (told,) = found.kind("settings")
    assert told["device"] == "cpu"
    assert told["built_for"] == ("cpu" if found.out == "None\n" else "cuda " + found.out.strip())


def test_no_error_of_ours_was_caught(watched: Run) -> None:
    """The guard had nothing to do."""
    assert watched.kind("guest-error") == []
    assert watched.words is not None
    assert watched.words[7] == 0


def test_the_batch_is_described_once_for_each_shape(watched: Run) -> None:
    """Shape and dtype of what the model is called with."""
    assert [event["shapes"] for event in watched.kind("batch")] == [[[[10, 8], "torch.float32"]]]


def test_a_batch_far_larger_than_all_before_it_is_told_before_the_model_meets_it(tmp_path: Path) -> None:
    """With its samples' numbers; also after many shapes, of which no more are told."""
    text = """
        import os, time, torch
        from torch import nn
        class Texts(torch.utils.data.Dataset):
            def __len__(self): return 240
            def __getitem__(self, i): return torch.ones(4000 if i == 230 else 8 + i // 3)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))
            def forward(self, x):
                if x.shape[1] > 1000:
                    os._exit(9)
                return (x * self.scale).mean()
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def padded(samples):
            return nn.utils.rnn.pad_sequence(samples, batch_first=True)
        for x in torch.utils.data.DataLoader(Texts(), batch_size=3, collate_fn=padded):
            net(x).backward()
            optimizer.step()
            time.sleep(0.012)  # of shorter steps not all are looked at
    """
    done = run(tmp_path, text)

    last = done.kind("batch")[-1]
    assert done.code == 9
    assert (last["shapes"], last["samples"]) == ([[[3, 4000], "torch.float32"]], [228, 229, 230])
    loader = next(event for event in done.kind("made") if event["what"] == "loader")
    assert (Path(loader["collate_file"]).name, loader["collate_line"]) == ("train.py", 17)


@pytest.mark.parametrize(
    "given",
    ["partial(padded, 0)", "RemoveColumnsCollator(Padding(), [])", "Padding()"],
    ids=["partial", "HF", "object"],
)
def test_a_collate_function_is_known_within_what_is_put_around_it(tmp_path: Path, given: str) -> None:
    """A partial, an object that is called, and the wrapper that a Trainer puts around one."""
    needs("transformers")
    text = f"""
        from functools import partial
        import torch
        from transformers.trainer_utils import RemoveColumnsCollator
        def padded(value, samples): return torch.stack(samples)
        class Padding:
            def __call__(self, samples): return torch.stack(samples)
        loader = torch.utils.data.DataLoader([torch.ones(2)] * 8, batch_size=2, collate_fn={given})
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in loader:
            net(x).sum().backward()
            optimizer.step()
    """
    done = run(tmp_path, text)

    loader = next(event for event in done.kind("made") if event["what"] == "loader")
    assert (Path(loader["collate_file"]).name, loader["collate_line"]) == ("train.py", 5 if "partial" in given else 7)


def test_models_rebuilt_in_a_loop_are_counted_alive(tmp_path: Path) -> None:
    """Models that are kept show as alive, models that are dropped do not."""
    done = agent_run.run(
        tmp_path,
        """
        import time, torch
        from torch import nn
        kept = []
        for i in range(4):
            kept.append(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
            dropped = nn.Linear(4, 4)
            opt = torch.optim.SGD(kept[-1].parameters(), lr=0.1)
            kept[-1](torch.ones(2, 4)).sum().backward()
            time.sleep(0.4)
            opt.step()
        """,
    )
    last = {(e["name"], e["line"]): (e["made"], e["alive"]) for e in done.kind("made") if e["what"] == "model"}

    assert last["Sequential", 6][0] >= 3
    assert last["Sequential", 6][0] == last["Sequential", 6][1]
    assert last["Linear", 7][1] <= 1


def test_a_nan_loss_is_told_by_its_first_step(tmp_path: Path) -> None:
    """The step at which the loss became non-finite is known, also among steps of microseconds."""
    from holter.record.ring_reader import RingView
    from holter.record.steps import window

    run(
        tmp_path,
        """
        import torch
        from torch import nn
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(100):
            x = torch.ones(2, 4) * (float("nan") if i >= 60 else 1.0)
            loss = model(x).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    )
    (ring,) = (tmp_path / "guests").glob("*.ring")
    line = window(1, RingView(ring.read_bytes()).slots(), 0.0)

    assert line is not None
    assert line["bad_loss"] == 61
    assert line["last"] == 100


def test_gradients_accumulated_over_batches_are_one_step(tmp_path: Path) -> None:
    """The optimizer's steps count, not the batches."""
    done = run(
        tmp_path,
        """
        import torch
        from torch import nn
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(12):
            model(torch.ones(2, 4)).mean().backward()
            if i % 4 == 3:
                opt.step(); opt.zero_grad()
        """,
    )

    assert done.words is not None
    assert done.words[4] == 3


BY_HAND = """
    import time, torch, holter
    model = torch.nn.Linear(8, 1)
    for step in range(40):
        loss = model(torch.ones(4, 8)).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
                weight.grad = None
        time.sleep(0.005)
"""


def test_weights_that_are_updated_by_hand_make_each_backward_a_step(tmp_path: Path) -> None:
    found = run(tmp_path, BY_HAND)

    assert found.words is not None
    assert found.words[4] == 40
    assert found.kind("batch")


FUNCTIONS_SEEN = """
    import time, torch
    from collections import Counter
    from torch.overrides import TorchFunctionMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def told(train):
        seen.clear()
        with Functions():
            train()
        print(sorted(Counter(seen).items()))

    def by_hand():
        for _ in range(8):
            model(torch.ones(2, 4)).sum().backward()

    def with_an_optimizer():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            by_hand()
            optimizer.step()
            time.sleep(0.4)

    seen, model = [], torch.nn.Linear(4, 1)
    told(by_hand)
    told(with_an_optimizer)
"""


def test_who_watches_a_loop_sees_nothing_of_ours_for_seconds(tmp_path: Path) -> None:
    """Neither where updates by hand become steps, nor in what is asked once a second."""
    alone, watched = (run(tmp_path / str(agent), FUNCTIONS_SEEN, agent=agent) for agent in (False, True))

    assert alone.out.count("backward") >= 2
    assert watched.out == alone.out


def test_steps_that_the_script_counts_itself_are_not_counted_twice(tmp_path: Path) -> None:
    found = run(tmp_path, BY_HAND + "        holter.step(loss=loss)\n")

    assert found.words is not None
    assert found.words[4] == 40


def test_a_backward_that_trains_nothing_counts_no_step(tmp_path: Path) -> None:
    """As in a gradient with respect to an input, before the training has its optimizer."""
    text = """
        import torch
        x = torch.ones(3, requires_grad=True)
        for _ in range(3):
            x.pow(2).sum().backward()
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(10):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    """
    found = run(tmp_path, text)

    assert found.words is not None
    assert found.words[4] == 10


def test_a_script_that_only_predicts_counts_no_step_and_has_no_ring(tmp_path: Path) -> None:
    """Inference alone is no training."""
    done = run(tmp_path, "import torch; m = torch.nn.Linear(2, 2); print(m(torch.ones(1, 2)).shape)")

    assert done.words is None
    assert done.code == 0


def test_models_pickle_copy_script_and_compile_as_before(tmp_path: Path) -> None:
    """A trained class carries nothing of ours into a pickle, a deep copy, a script or a compiled graph."""
    script = """
        import copy, pickle, warnings, torch
        from torch import nn
        warnings.simplefilter("ignore")
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)
            def forward(self, x):
                return self.lin(x).relu()
        torch.manual_seed(0)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def step(model):
            loss = model(torch.ones(2, 4)).sum()
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.item()
        print(step(net))
        blob = pickle.dumps(net)
        print(b"holter" in blob, step(pickle.loads(blob)) is not None, type(copy.deepcopy(net)).__name__)
        print(torch.jit.script(net)(torch.ones(1, 4)).sum().item())
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        print([step(compiled) for _ in range(3)])
        from torch._dynamo.utils import counters
        print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
    """
    plain, watched = run(tmp_path / "plain", script, agent=False), run(tmp_path / "watched", script)

    assert plain.code == 0, plain.err
    assert watched.out == plain.out
    assert watched.words is not None
    assert watched.words[4] == 5


@pytest.mark.parametrize("pause", [0.0, 0.025])
def test_two_optimizers_that_take_turns_count_once(tmp_path: Path, pause: float) -> None:
    """An iteration of a GAN is one step, however short: the discriminator's is a part of it."""
    done = run(
        tmp_path,
        f"""
        import time, torch
        nets = [torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)]
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        for iteration in range(60):
            for net, optimizer in zip(nets, optimizers):
                optimizer.zero_grad(); net(torch.ones(2, 4)).sum().backward(); optimizer.step()
            time.sleep({pause})
        """,
    )

    assert done.words is not None
    assert done.words[4] == 60


def test_workers_are_known_and_have_no_ring(tmp_path: Path) -> None:
    """DataLoader workers say that they are workers, and only the trainer has steps."""
    done = agent_run.run(
        tmp_path,
        """
        import torch
        from torch import nn
        data = torch.utils.data.TensorDataset(torch.ones(16, 4))
        if __name__ == "__main__":
            model = nn.Linear(4, 1)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            for (x,) in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2):
                model(x).mean().backward(); opt.step()
        """,
    )
    roles = sorted(event["role"] for event in done.kind("guest"))

    assert roles == ["python", "trainer", "worker", "worker"]
    assert len(list((tmp_path / "guests").glob("*.ring"))) == 1


def test_a_scaled_loss_is_recorded_unscaled(tmp_path: Path) -> None:
    """With a GradScaler the record holds the loss, not the loss times 65,536."""
    done = run(
        tmp_path,
        """
        import torch
        from torch import nn
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=1e-4)
        scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
        for i in range(3):
            loss = model(torch.ones(2, 4)).pow(2).mean() + 1
            opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
        print(loss.item())
        """,
    )

    assert done.code == 0, done.err
    assert done.slots[-1].loss == pytest.approx(float(done.out))


RUNS_DRY = """
import torch
from torch.utils.data import DataLoader, TensorDataset
labelled = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8)
other = DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
extra = MADE
for epoch in range(8):
    PEEK
    for (u,), (x,) in PAIRS:
        optimizer.zero_grad()
        (model(x).mean() + model(u).square().mean()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("pairs", "steps"), [("zip(extra, labelled)", 5), ("zip(labelled, extra)", 6)])
def test_passes_in_which_nothing_is_drawn_are_told_once(tmp_path: Path, pairs: str, steps: int) -> None:
    """An iterator that was made once is empty after a while, and the loop over both does nothing from then on."""
    script = RUNS_DRY.replace("MADE", "iter(other)").replace("PAIRS", pairs).replace("PEEK", "pass")
    done = run(tmp_path, script)

    (told,) = done.kind("idle-passes")
    assert told["step"] == steps


@pytest.mark.parametrize("peek", ["pass", "next(iter(labelled))"])
def test_passes_that_train_are_not_idle(tmp_path: Path, peek: str) -> None:
    """Nor is a look at one batch before each of them."""
    script = RUNS_DRY.replace("MADE", "other").replace("PAIRS", "zip(extra, labelled)").replace("PEEK", peek)

    assert run(tmp_path, script).kind("idle-passes") == []


def test_two_shapes_that_take_turns_are_told_once_each(tmp_path: Path) -> None:
    """They would fill the record with the same two lines."""
    script = RUNS_DRY.replace("MADE", "other").replace("PAIRS", "zip(extra, labelled)").replace("PEEK", "pass")
    done = run(tmp_path, script.replace("torch.randn(48, 4)), batch_size=8", "torch.randn(48, 4)), batch_size=12"))

    assert len(done.kind("batch")) <= 2
