"""What grows inside a process is found by its name, and a process that does not grow is left alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.agent import agent_run
from tests.agent.agent_run import Run
from tests.agent.forked_run import run
from tests.needs import needs

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# How often a census was told so far. It comes once a second at most, and later where the machine is slow.
CENSUSES = """
import glob, os, time

def censuses():
    files = glob.glob(os.environ["HOLTER_AGENT_DIR"] + "/*.jsonl")
    return sum(open(file).read().count('"k":"held"') for file in files)

def enough(wanted, begun=time.monotonic()):
    return censuses() >= wanted or time.monotonic() > begun + 60
"""
HEAD = (
    CENSUSES
    + """
import sys, torch
from collections import deque
from functools import lru_cache
from torch import nn
torch.manual_seed(3)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(x):
    out = model(x)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    return out, loss

def go(keep, steps=10_000, rows=512):
    for step in range(steps):
        if enough(1):
            break
        out, loss = train(torch.ones(rows, 64))
        keep(step, out, loss)
        time.sleep(0.02)

"""
)

# Several ways to hold on to things, all at once: each is to be found under its own name.
MANY = (
    HEAD
    + """
class Log:
    def __init__(self):
        self.outputs = {}

def logger():
    kept = deque()
    def log(x):
        kept.append({"out": [x]})
    return log

def remember(i, x, known={}):
    known[i] = x

@lru_cache(maxsize=None)
def features(i):
    return torch.ones(2048, 64)

losses, hooked, log, close = [], [], Log(), logger()
seen = torch.empty(0, 64)
model[0].register_forward_hook(lambda m, i, o: hooked.append(o.detach()))

def main():
    global seen
    total, step = 0.0, 0
    while not enough(2):
        out, loss = train(torch.ones(512, 64))
        total = total + loss
        losses.append(loss)
        log.outputs[step] = out.detach().repeat(8, 1).numpy()
        close(torch.ones(2048, 64))
        remember(step, torch.ones(2048, 64))
        features(step)
        seen = torch.cat([seen, out.detach().repeat(8, 1)])
        step += 1
        time.sleep(0.05)

main()
"""
)
FLAT = HEAD + "last = deque(maxlen=4)\ngo(lambda step, out, loss: last.append(loss.item()), steps=120, rows=16)\n"
WORKER = (
    CENSUSES
    + """
import torch
from torch import nn
class Cached(torch.utils.data.Dataset):
    def __init__(self): self.cache = {}
    def __len__(self): return 4000
    def __getitem__(self, i):
        self.cache[i] = torch.ones(50_000)
        return torch.ones(8)
if __name__ == "__main__":
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Cached(), batch_size=4, num_workers=1, multiprocessing_context="fork")
    for step, x in enumerate(loader):
        model(x).sum().backward()
        optimizer.step()
        time.sleep(0.02)
        if step > 100 and enough(1):
            break
"""
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("many"), MANY)


def row_of(found: Run, name: str) -> dict[str, Any]:
    """What the last census says of a name."""
    assert found.code == 0, found.err
    assert found.kind("guest-error") == []
    rows: list[dict[str, Any]] = found.kind("held")[-1]["list"]
    return next(row for row in rows if row["name"] == name)


@pytest.mark.parametrize(
    ("name", "scope", "owner", "kind"),
    [
        ("losses", "global", "", "tensor"),
        ("log.outputs", "attribute", "Log", "array"),
        ("kept", "closure", "log", "tensor"),
        ("known", "default", "remember", "tensor"),
        ("features", "cache", "", "tensor"),
        ("seen", "global", "", "tensor"),
        ("hooked", "global", "", "tensor"),
    ],
)
def test_what_grows_is_found_by_name(many: Run, name: str, scope: str, owner: str, kind: str) -> None:
    """The holder's name, scope, owner, content and file are told, with its length and size before and now."""
    row = row_of(many, name)

    assert (row["scope"], row["owner"], row["kind"]) == (scope, owner, kind)
    assert Path(row["file"]).name == "train.py"
    assert row["length"] > row["length_before"] > 0
    assert row["bytes"] > row["bytes_before"] > 0


def test_what_is_found_explains_the_growth(many: Run) -> None:
    """What the holders weigh more than at the first census is about what the process grew by since."""
    last = many.kind("held")[-1]
    explained = sum(row["bytes"] - row["bytes_before"] for row in last["list"] if row["name"] != "total")

    assert 0.6 < explained / (last["rss"] - last["rss_before"]) < 1.6


def test_a_kept_loss_is_told_with_its_graph(many: Run) -> None:
    """A list of losses says that they hold graphs, and their activations with them; one of arrays does not."""
    losses = row_of(many, "losses")

    assert (losses["graph"], losses["saved"], losses["shape"]) == (True, True, [])
    assert "graph" not in row_of(many, "log.outputs")


def test_a_graph_that_gets_longer_behind_one_variable(many: Run) -> None:
    """A sum of losses holds one more graph at each step, though it is one number."""
    total = row_of(many, "total")

    assert (total["scope"], total["owner"], total["graph"]) == ("local", "main", True)
    assert total["nodes"] > total["nodes_before"] > 0


def test_a_flat_run_is_never_looked_through(tmp_path: Path) -> None:
    """A run whose memory stays where it is has no census at all."""
    found = run(tmp_path, FLAT)

    assert found.code == 0
    assert found.kind("held") + found.kind("guest-error") == []


def test_a_worker_looks_at_its_dataset(tmp_path: Path) -> None:
    """A cache that a data worker fills is found in the worker, with the length it can't exceed."""
    found = agent_run.run(tmp_path, WORKER)
    censuses = [event for event in found.kind("held") if event["role"] == "worker"]

    assert censuses, found.err
    row = censuses[-1]["list"][0]
    assert (row["name"], row["owner"], row["bound"]) == ("dataset.cache", "Cached", 4000)
    assert found.kind("guest-error") == []


def test_a_worker_tells_what_its_dataset_holds_before_the_first_batch(tmp_path: Path) -> None:
    """One of them says it, once, and each says what it shared with its parent: a fast death leaves nobody to ask."""
    rows = "self.rows = [[float(i), float(i + 1)] for i in range(300_000)]; self.cache = {}"
    found = agent_run.run(tmp_path, WORKER.replace("self.cache = {}", rows).replace("num_workers=1", "num_workers=2"))
    censuses = [event for event in found.kind("held") if event["role"] == "worker" and event["census"] == 0]
    workers = [event for event in found.kind("guest") if event["role"] == "worker"]

    assert [event["list"][0]["name"] for event in censuses] == ["dataset.rows"], found.err
    assert censuses[0]["list"][0]["length"] == 300_000
    assert censuses[0]["took"] < 0.02
    assert [event["inherited"] > 50e6 for event in workers] == [True, True]
    assert found.kind("guest-error") == []


def test_a_spawned_worker_has_inherited_nothing(tmp_path: Path) -> None:
    """What it holds it was sent: it shares no page with the trainer, and none is looked for."""
    found = agent_run.run(tmp_path, WORKER.replace('"fork"', '"spawn"'))
    workers = [event for event in found.kind("guest") if event["role"] == "worker"]

    assert workers, found.err
    assert not any("inherited" in event for event in workers)
    assert not any("private" in event for event in found.kind("held"))


def test_a_loop_of_holter_step_is_looked_through(tmp_path: Path) -> None:
    """What a plain loop keeps is found without any framework."""
    script = (
        "import time, holter\n"
        "kept = []\n"
        "for step in range(60):\n"
        "    kept.append(bytearray(2_000_000))\n"
        "    time.sleep(0.05)\n"
        "    holter.step(loss=1.0)\n"
    )
    row = row_of(agent_run.run(tmp_path, script), "kept")

    assert row["length"] > row["length_before"]


def test_the_result_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """With censuses on the way, every loss and the random stream are those of a run without the agent."""
    script = HEAD + (
        "kept, losses = [], []\n"
        "for step in range(90):\n"
        "    out, loss = train(torch.randn(512, 64))\n"
        "    kept.append(out)\n"
        "    losses.append(loss.item().hex())\n"
        "    time.sleep(0.02)\n"
        "print(losses, torch.rand(1).item().hex())\n"
    )
    watched, plain = run(tmp_path / "watched", script), run(tmp_path / "plain", script, agent=False)

    assert watched.kind("held")
    assert watched.kind("guest-error") == []
    assert watched.out == plain.out


def test_nothing_is_kept_alive_and_locals_stay_the_script_s_own(tmp_path: Path) -> None:
    """What a function let go is gone after a census, and a dict that it got from `locals()` is as it was."""
    script = HEAD + (
        "import gc, weakref\n"
        "class Thing:\n"
        "    pass\n"
        "kept = []\n"
        "def main(rate=3):\n"
        "    config = locals()\n"
        "    inner()\n"
        "    print(sorted(config))\n"
        "def inner():\n"
        "    thing = Thing()\n"
        "    gone = weakref.ref(thing)\n"
        "    for step in range(120):\n"
        "        out, loss = train(torch.ones(512, 64))\n"
        "        kept.append(out)\n"
        "        time.sleep(0.02)\n"
        "    del thing\n"
        "    print(gone() is None)\n"
        "main()\n"
    )
    found = run(tmp_path, script)

    assert found.kind("held")
    assert found.out.split("\n")[:2] == ["True", "['rate']"]


def test_no_code_of_the_user_s_is_called(tmp_path: Path) -> None:
    """Properties, `__len__`, `__iter__`, `__getattr__` and `__sizeof__` of the script's classes stay untouched."""
    script = HEAD + (
        "def no(*_):\n"
        "    print('called')\n"
        "    raise RuntimeError\n"
        "class Shy(list):\n"
        "    __len__ = __iter__ = __getitem__ = __getattr__ = __sizeof__ = __eq__ = __bool__ = no\n"
        "    __hash__ = None\n"
        "class Odd:\n"
        "    outputs = property(no)\n"
        "    __getattr__ = __sizeof__ = no\n"
        "shy, odd, kept = Shy(), Odd(), []\n"
        "go(lambda step, out, loss: (kept.append(out), list.append(shy, out)))\n"
    )
    found = run(tmp_path, script)

    assert found.kind("held")
    assert found.out == ""


@pytest.mark.tensorflow
def test_what_a_keras_callback_keeps_is_found(tmp_path: Path) -> None:
    """A callback that is in no variable of the script, and the predictions in it."""
    needs("tensorflow")
    script = (
        "import time, numpy as np, keras\n"
        "x = np.ones((512, 16), dtype='float32')\n"
        "class Keep(keras.callbacks.Callback):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.predictions = []\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        self.predictions.append(np.ones((512, 512)))\n"
        "        time.sleep(0.02)\n"
        "model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0, callbacks=[Keep()])\n"
    )
    found = agent_run.run(tmp_path, script)
    row = found.kind("held")[-1]["list"][0]

    assert found.kind("guest-error") == []
    assert (row["variable"], row["owner"], row["kind"]) == ("predictions", "Keep", "array")
    assert row["length"] > row["length_before"] > 0


@pytest.mark.tensorflow
def test_tapes_that_are_kept_are_known_with_their_graph(tmp_path: Path) -> None:
    """What a persistent tape has recorded can't be weighed; one whose gradients were taken has let go of it."""
    needs("tensorflow")
    script = (
        "import time, tensorflow as tf\n"
        "weight, tapes, spent = tf.Variable(tf.ones((400, 400))), {}, []\n"
        "optimizer = tf.keras.optimizers.SGD(0.01)\n"
        "for step in range(120):\n"
        "    for kept, persistent in ((tapes, True), (spent, False)):\n"
        "        with tf.GradientTape(persistent=persistent) as tape:\n"
        "            loss = tf.reduce_sum(tf.tanh(weight))\n"
        "        gradient = tape.gradient(loss, weight)\n"
        "        kept.append(tape) if kept is spent else kept.update({step: (tape, float(loss))})\n"
        "    optimizer.apply_gradients([(gradient, weight)])\n"
        "    time.sleep(0.03)\n"
    )
    found = agent_run.run(tmp_path, script)
    rows = {row["variable"]: row for row in found.kind("held")[-1]["list"]}

    assert found.kind("guest-error") == []
    assert (rows["tapes"]["kind"], rows["tapes"]["graph"]) == ("tape", True)
    assert not rows.get("spent", {}).get("graph")


@pytest.mark.torch
@pytest.mark.parametrize(
    "fed_back",
    ["h = cell(torch.ones(64, 64), h).tanh() * 0.9 + h * 0.1", "h = h + big(torch.ones(64, 64)).tanh().mean()"],
)
def test_a_chain_that_is_already_long_is_still_seen_to_grow(tmp_path: Path, fed_back: str) -> None:
    """The first census may come when the graph is longer than it looks: then the next ones look further."""
    done = run(
        tmp_path,
        textwrap.indent(CENSUSES, " " * 8)
        + f"""
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mix = torch.nn.Linear(64, 64)
        big = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(30)])
        def cell(x, h): return mix(x) + h
        h = torch.zeros(64, 64)
        while not enough(4):
            for _ in range(4):
                {fed_back}
            optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
        """,
    )
    seen = [(row["nodes"], row.get("nodes_before")) for event in done.kind("held") for row in event["list"]
            if row["name"] == "h" and row.get("graph")]  # fmt: skip

    assert done.kind("guest-error") == []
    assert any(before and nodes > 1.2 * before for nodes, before in seen), seen


LIBRARY = """
class Handler:
    def __init__(self, callbacks):
        self.callbacks = callbacks

    def step_ended(self):
        for callback in self.callbacks:
            callback.step_ended()

class Trainer:
    def __init__(self, callbacks):
        self.handler = Handler(callbacks)

    def train(self, model, optimizer, batches):
        for batch in batches:
            loss = model(batch).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.handler.step_ended()
"""


def test_what_a_callback_keeps_within_a_library_s_object_is_found(tmp_path: Path) -> None:
    """A library's own frame, which is followed less far, reaches it as well: the script's name for it goes first."""
    library = tmp_path / "site-packages" / "looping"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(LIBRARY)
    script = HEAD + textwrap.dedent(
        f"""
        sys.path.insert(0, {str(library.parent)!r})
        from looping import Trainer

        class Average:
            def __init__(self):
                self.history = []

            def step_ended(self):
                self.history.append(torch.ones(4096, 64))
                time.sleep(0.02)

        def batches():
            while not enough(2):
                yield torch.ones(8, 64)

        def main():
            trainer = Trainer([Average()])
            trainer.train(model, optimizer, batches())

        main()
        """
    )
    found = run(tmp_path, script)

    assert row_of(found, "trainer.handler.callbacks[0].history")["owner"] == "Average"
