"""A training goes on from its own state and from no other: real kills, one process after the other."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holter.agent.heal.state_owner import Checkpoints, Training, content, is_shown, plain
from holter.agent.keras.heal.resume import Backups, _is_plain
from holter.agent.torch.heal.loop_state import Snapshot, put_back
from tests.agent.agent_run import Run, printed_alone, run
from tests.needs import needs

KILL = """
import os, signal, sys


def strike(word="struck"):
    if not os.path.exists(word):
        open(word, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


"""


class Attempts:
    """The attempts of one run: the same folder, the same state."""

    def __init__(self, folder: Path, script: str) -> None:
        self.folder, self.script = folder, KILL + script
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        self.number = 0

    def next(self) -> Run:
        self.number += 1
        own = {"HOLTER_HEAL": "1", "HOLTER_STATE_DISK": str(self.state), "HOLTER_ATTEMPT": str(self.number)}
        for path in (self.folder / "guests").glob("*"):
            path.unlink()
        return run(self.folder, self.script, **own)

    def both(self) -> Run:
        """The first is killed, and the second is looked at."""
        first = self.next()
        assert first.code == -9, first.err
        second = self.next()
        assert second.code == 0, second.err
        assert [event["error"] for event in second.kind("guest-error")] == []
        return second


def alone(factory: pytest.TempPathFactory, scripts: dict[str, tuple[str, tuple[str, ...]]]) -> dict[str, list[str]]:
    """The lines of scripts as they are, each with some files there before."""
    folders = {name: factory.mktemp("plain") for name in scripts}
    for name, (_script, made) in scripts.items():
        for file in made:
            (folders[name] / file).touch()
    found = printed_alone({folders[name]: KILL + script for name, (script, _made) in scripts.items()})
    return {name: found[folder].splitlines() for name, folder in folders.items()}


def resumed(done: Run) -> list[dict[str, Any]]:
    return [act for act in done.kind("intervention") if act["act"] == "resume"]


def refused(done: Run) -> list[str]:
    return [act["because"] for act in done.kind("declined") if act["act"] == "resume"]


# Two stages at the same place in the script, each skipped once it is done. They differ in their data alone.
STAGES = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np

keras.utils.set_random_seed(0)
for stage, width in ((1, 6), (2, WIDTH)):
    if os.path.exists("done%d" % stage):
        continue
    x = np.random.RandomState(stage).rand(64, width).astype("float32")
    y = stage * x.sum(1)
    model = keras.Sequential([MADE])
    model.compile("adam", "mse")

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            Count.batches = getattr(Count, "batches", 0) + 1
            if stage == 2 and Count.batches == 9:
                AT

    data = DATA
    past = model.fit(*data, epochs=3, batch_size=16, verbose=0, shuffle=False, callbacks=[Count()])
    print("stage", stage, Count.batches, np.round(past.history["loss"], 5), np.round(model.get_weights()[0][0, 0], 5))
    open("done%d" % stage, "w").close()
    if stage == 1:
        BETWEEN
"""
MADE = "keras.layers.Dense(4), keras.layers.Dense(1)"
ARRAYS = "(x, y)"
STREAM = "(__import__('tensorflow').data.Dataset.from_tensor_slices((x, y)).batch(16),)"


def stages(data: str, *, width: int = 6, at: str = "pass", between: str = "pass", made: str = MADE) -> str:
    text = STAGES.replace("DATA", data).replace("WIDTH", str(width)).replace("MADE", made)
    if data == STREAM:
        text = text.replace(" batch_size=16,", "")
    return text.replace("AT\n", at + "\n").replace("BETWEEN\n", between + "\n")


# Each with the data of its second stage.
SKIPPED = {
    "stream": stages(STREAM, between="strike()"),
    "another shape": stages(ARRAYS, width=3, between="strike()"),
}
KILLED = stages(ARRAYS, at="strike()", made="keras.Input((6,)), " + MADE)
RATES = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np

x = np.random.RandomState(0).rand(64, 8).astype("float32")
for rate in (0.1, 0.001):
    if os.path.exists(str(rate)):
        continue
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    model.fit(x, x.sum(1), epochs=2, batch_size=16, verbose=0)
    print(rate, np.round(model.get_weights()[0][:3, 0], 5))
    open(str(rate), "w").close()
    strike()
"""
# The rate stands in a function of the script's, which a library's callback holds.
SCHEDULES = RATES.replace("SGD(rate)", "SGD(0.05)").replace(
    "verbose=0)", "verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: rate)])"
)
GRAPHS = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np

x = np.random.RandomState(0).rand(64, 8).astype("float32")
for name in ("relu", "tanh"):
    if os.path.exists(name):
        continue
    keras.utils.set_random_seed(0)
    at = keras.Input((8,))
    model = keras.Model(at, keras.layers.Dense(1)(getattr(keras.ops, name)(keras.layers.Dense(4)(at))))
    model.compile("sgd", "mse")
    model.fit(x, x.sum(1), epochs=2, batch_size=16, verbose=0)
    print(name, np.round(model.get_weights()[0][:3, 0], 5))
    open(name, "w").close()
    strike()
"""

# A search that does not come back to what it has begun, as Optuna's with a storage; a stream shows nothing of its data.
SEEDS = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np, tensorflow as tf

x = np.random.RandomState(0).rand(64, 8).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).batch(16)
for seed in (1, 2):
    if os.path.exists(str(seed)):
        continue
    open(str(seed), "w").close()
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data, epochs=3, verbose=0, callbacks=[keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: epoch == 2 and strike())])
    print(seed, np.round(model.get_weights()[0][:3, 0], 5))
"""


@pytest.fixture(scope="module")
def keras_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The same scripts as nobody has killed or healed them, with what was done before them skipped."""
    needs("keras")
    scripts = {name: (text, ("done1", "struck")) for name, text in {**SKIPPED, "killed": KILLED}.items()}
    others = {
        "rates": (RATES, ("0.1", "struck")),
        "schedules": (SCHEDULES, ("0.1", "struck")),
        "graphs": (GRAPHS, ("relu", "struck")),
        "seeds": (SEEDS, ("1", "struck")),
        "kept": (KEPT, ("struck",)),
    }
    return alone(tmp_path_factory, {**scripts, **others})


@pytest.mark.parametrize("kind", SKIPPED)
def test_a_stage_never_gets_the_state_of_one_that_was_skipped(
    tmp_path: Path, kind: str, keras_alone: dict[str, list[str]]
) -> None:
    """Killed once stage 1 is done: stage 2 is the first fit of the next process, and is trained as it is."""
    needs("keras")
    second = Attempts(tmp_path / "healed", SKIPPED[kind]).both()

    assert second.out.splitlines() == keras_alone[kind]
    assert "stage 2 12" in second.out
    assert resumed(second) == []


def test_a_stage_that_was_killed_goes_on_though_the_one_before_it_is_skipped(
    tmp_path: Path, keras_alone: dict[str, list[str]]
) -> None:
    """Its data tell which one it is; what it ends with is what it would have ended with."""
    needs("keras")
    second = Attempts(tmp_path / "healed", KILLED).both()

    assert [act["text"] for act in resumed(second)] == ["goes on after epoch 2, from its backup"]
    assert second.out.split()[2] == "4"  # of twelve batches, those of the last epoch
    assert len(keras_alone["killed"]) == 1


def test_where_two_stages_can_not_be_told_apart_the_second_attempt_begins_them_anew(tmp_path: Path) -> None:
    """A stream shows nothing of its data: it is said once, and both are trained whole."""
    needs("keras")
    text = stages(STREAM, at="strike()").replace('if os.path.exists("done%d" % stage)', "if False")
    second = Attempts(tmp_path / "healed", text).both()

    assert resumed(second) == []
    assert len(refused(second)) == 1
    assert "2 trainings were begun at train.py:" in refused(second)[0]
    assert [line.split()[2] for line in second.out.splitlines()] == ["12", "12"]


def test_a_fit_goes_on_also_where_no_seed_is_set(tmp_path: Path) -> None:
    """Killed in the third epoch of five: it goes on there, and the history that the script reads is whole."""
    needs("keras")
    text = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np

x = np.random.RandomState(0).rand(64, 8).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")


class Strike(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch + 1, flush=True)
        if epoch == 2:
            strike()


past = model.fit(x, x.sum(1), epochs=5, batch_size=8, verbose=0, callbacks=[Strike()])
print("history", past.epoch, len(past.history["loss"]), int(model.optimizer.iterations))
"""
    second = Attempts(tmp_path / "healed", text).both()

    assert second.out.splitlines() == ["epoch 3", "epoch 4", "epoch 5", "history [0, 1, 2, 3, 4] 5 40"]


KEPT = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np, tensorflow as tf

x = np.random.RandomState(0).rand(64, 6).astype("float32")


class Pair(keras.Model):
    # Two optimizers that Keras does not know of, one in a list, and a count that it does not know of either.
    def __init__(self):
        super().__init__()
        self.one, self.two = keras.layers.Dense(6), keras.layers.Dense(6)
        self.rates, self.count = [keras.optimizers.Adam(0.01)], tf.Variable(0.0)
        self.other = keras.optimizers.RMSprop(0.01)

    def call(self, x):
        return self.two(self.one(x))

    def train_step(self, x):
        self.count.assign_add(1.0)
        for layer, optimizer in ((self.one, self.rates[0]), (self.two, self.other)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x) - x) ** 2) + 0.01 * self.count
            optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return {"value": loss}


class Strike(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses, self.least = [], 9.0

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            strike()

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(round(logs["value"], 5))
        self.least = min(self.least, *self.losses)


keras.utils.set_random_seed(0)
model, seen = Pair(), Strike()
model.compile()
past = model.fit(x, epochs=4, batch_size=16, verbose=0, shuffle=False,
                 callbacks=[keras.callbacks.CSVLogger("log.csv"), seen])
print(seen.losses, np.round(past.history["value"], 5).tolist(), past.epoch, round(seen.least, 5))
print([line.split(",")[0] for line in open("log.csv").read().splitlines()])
print([int(one.iterations) for one in (model.rates[0], model.other)], float(model.count))
print(np.round(model.two.get_weights()[0][0], 4).tolist())
"""


def test_all_that_a_fit_has_counted_is_there_again(tmp_path: Path, keras_alone: dict[str, list[str]]) -> None:
    """Optimizers of a step of one's own, a variable that Keras does not know, the numbers of the script's callback, the
    lines of a CSVLogger: what was never killed prints the same."""
    needs("keras")
    second = Attempts(tmp_path / "healed", KEPT).both()

    assert second.out.splitlines() == keras_alone["kept"]
    assert [act["text"] for act in resumed(second)] == ["goes on after epoch 2, from its backup"]


def test_many_fits_go_on_in_the_one_that_was_killed(tmp_path: Path) -> None:
    """A search with a seed: the models of all fits that were done are what they were, and are not trained again."""
    needs("keras")
    text = """
os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
import keras, numpy as np

keras.utils.set_random_seed(0)
x = np.random.rand(64, 8).astype("float32")
known = os.path.exists("known") and open("known").read().splitlines() or []
for number in range(5):
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    model.fit(x, x.sum(1), epochs=2, batch_size=32, verbose=0)
    line = "%d %.5f" % (number, model.evaluate(x, x.sum(1), verbose=0))
    print(line, flush=True)
    if number < len(known):
        assert line == known[number], (line, known[number])
        continue
    open("known", "a").write(line + "\\n")
    if number == 3:
        strike()
"""
    second = Attempts(tmp_path / "healed", text).both()

    assert len(set(second.out.splitlines())) == 5
    assert len(resumed(second)) == 4


@pytest.mark.parametrize(
    ("name", "text"), [("rates", RATES), ("schedules", SCHEDULES), ("graphs", GRAPHS), ("seeds", SEEDS)]
)
def test_what_differs_in_a_rate_an_operation_or_a_seed_is_another_training(
    tmp_path: Path, keras_alone: dict[str, list[str]], name: str, text: str
) -> None:
    """A grid with the same data for each rate, each operation that is no layer or each seed, whose first fit is skipped
    once it is done or begun."""
    needs("keras")
    second = Attempts(tmp_path / "healed", text).both()

    assert second.out.splitlines() == keras_alone[name]
    assert resumed(second) == []


def _function(rate: float, held: Any) -> Any:
    """One of a module of its own, with a rate and something else among what it names."""
    module = {"rate": rate, "held": held, "__name__": "__main__"}
    exec(compile("def schedule(epoch):\n    return rate * held\n", "/home/u/train.py", "exec"), module)
    return module["schedule"]


def test_a_function_is_known_by_all_that_it_reads() -> None:
    """Numbers that it names, closes over or has by default; where it reads anything else it is not known at all."""
    closed, given = (lambda epoch, rate=rate: rate * epoch for rate in (0.1, 0.2))

    assert plain(_function(0.1, 1)) == plain(_function(0.1, 1)) != plain(_function(0.2, 1))
    assert plain(closed) != plain(given)
    assert plain(partial(_function, rate=0.1)) != plain(partial(_function, rate=0.2))
    assert is_shown(_function(0.1, 1))
    assert is_shown(partial(_function(0.1, 1), 3))
    assert not is_shown(_function(0.1, SimpleNamespace(alpha=2.0)))
    assert not is_shown(_function(0.1, [1.0]))  # it may be another list by the time of the call
    assert not is_shown(_function(0.1, _function(0.1, 1)))
    assert not is_shown(SimpleNamespace(rate=0.1))


def test_a_callbacks_data_are_no_count_of_its_own() -> None:
    """What is kept of a callback with each epoch is small: arrays of data are passed over, whatever their kind."""
    numpy = pytest.importorskip("numpy")

    assert _is_plain([1, 2.0, {"best": numpy.float32(3.0)}])
    assert _is_plain(numpy.zeros(100))
    assert not _is_plain(numpy.zeros(1_000_000))
    assert not _is_plain(numpy.zeros(3, dtype=[("name", object)]))


def test_a_backup_that_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that is full or nearly so: no half a file, and no try at each epoch."""
    numpy = pytest.importorskip("numpy")
    monkeypatch.setenv("HOLTER_STATE_DISK", str(tmp_path))
    said: list[str] = []
    agent = SimpleNamespace(say=lambda kind, **_fields: said.append(kind), beat=SimpleNamespace(steps=9))
    backups, path = Backups(agent), tmp_path / "keras-1" / "backup"

    with pytest.raises(AttributeError):
        backups.write(str(path), lambda: (lambda: None, 24, [numpy.zeros(3)]))  # as an error amid the writing
    assert list(path.parent.iterdir()) == []
    assert backups.write(str(path), lambda: ({}, 24, [numpy.zeros(3)]))
    backups.next = 0.0
    assert not backups.write(str(path), lambda: ({}, 1 << 60, []))
    assert [one.name for one in path.parent.iterdir()] == ["backup"]
    assert said == ["declined"]


def test_data_that_differ_in_one_row_are_other_data() -> None:
    """Leave one out, one class against the rest: all of an array is looked at, nothing of the script's own."""
    numpy = pytest.importorskip("numpy")
    whole = numpy.random.default_rng(0).random((1000, 3))
    labels = numpy.arange(1000) % 500
    asked: list[str] = []

    class Own:
        shape = property(lambda _self: asked.append("shape"))

    folds = [content(numpy.delete(whole, row, 0), numpy) for row in (995, 996)]
    classes = [content(labels == kind, numpy) for kind in (7, 8)]

    assert len({*folds, *classes}) == 4
    assert content(whole, numpy) == content(whole.copy(), numpy)
    assert content(numpy.array([Own()]), numpy) is content(Own(), numpy) is None
    assert plain(Own()) == ("Own", [])
    assert asked == []


def test_a_checkpoint_that_another_training_has_written_over_is_gone_on_from_by_that_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings that save to one path, and one of them to a path of its own before."""
    monkeypatch.setenv("HOLTER_STATE_DISK", str(tmp_path))
    agent = SimpleNamespace(say=lambda *_args, **_fields: None)
    notes = Checkpoints(agent, "lightning")
    first, second = Training("1-1-1", [], again=True), Training("1-1-2", [], again=True)
    for training, name, step in ((first, "own", 1), (first, "last", 2), (second, "last", 3)):
        (tmp_path / name).touch()
        notes.note(training, tmp_path / name, step, 1)

    assert [notes.last(one, os.path.exists)["step"] for one in (first, second)] == [1, 3]
    assert notes.last(Training("1-1-2", []), os.path.exists) is None


LOOP = """
import random, time
import torch, holter
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
for stage in STAGES:
    if os.path.exists("done%d" % stage):
        continue
    data = TensorDataset(torch.randn(120, 8), stage * torch.ones(120, 1))
    loader = DataLoader(data, batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(5))
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    begun = None
    for epoch in holter.resumable(range(4), every=0.0, model=model, optimizer=optimizer, losses=losses):
        for x, y in holter.resumable(loader):
            begun = len(losses) if begun is None else begun
            noise = random.random() * 0.01 * torch.randn_like(x)
            loss = (model(x + noise) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            AT
    open("done%d" % stage, "w").close()
    print("begun", begun)
    print("result", repr(losses), repr([p.tolist() for p in model.parameters()]))
    BETWEEN
"""


def loop(stages: str, at: str = "pass", between: str = "pass") -> str:
    return LOOP.replace("STAGES", stages).replace("AT\n", at + "\n").replace("BETWEEN\n", between + "\n")


KILLED_LOOP = loop("(1,)", "time.sleep(0.5) or strike() if len(losses) == 31 else None")
SKIPPED_LOOP = loop("(1, 2)", between="strike()")


@pytest.fixture(scope="module")
def torch_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The same loops as nobody has killed or healed them."""
    needs("torch")
    return alone(
        tmp_path_factory, {"killed": (KILLED_LOOP, ("struck",)), "skipped": (SKIPPED_LOOP, ("done1", "struck"))}
    )


def test_a_killed_loop_goes_on_to_the_same_bits(tmp_path: Path, torch_alone: dict[str, list[str]]) -> None:
    """In the third epoch, with shuffled data, dropout, noise and moments: the losses and weights of the end are those
    of a run that nobody disturbed, and only what came after the last copy is done again."""
    pytest.importorskip("torch")
    second = Attempts(tmp_path / "healed", KILLED_LOOP).both()

    begun, result = second.out.splitlines()
    assert 1 <= int(begun.split()[1]) <= 31  # how often a copy is made goes by the time that it takes
    assert result == torch_alone["killed"][1]
    assert [act["keeps"] for act in resumed(second)] == ["exact"]


def test_a_loop_never_gets_the_state_of_a_stage_that_was_skipped(
    tmp_path: Path, torch_alone: dict[str, list[str]]
) -> None:
    """With a seed at the top the second stage begins with the very weights that the first one began with."""
    pytest.importorskip("torch")
    second = Attempts(tmp_path / "healed", SKIPPED_LOOP).both()

    assert second.out.splitlines() == torch_alone["skipped"]
    assert resumed(second) == []
    assert "whether this is the same one can't be proven" in refused(second)[0]


def test_a_state_in_a_dict_of_the_models_own_is_copied_with_its_versions() -> None:
    """PyTorch hangs the versions of the layers on to what `state_dict` gives: a plain dict has no place for them."""
    torch = pytest.importorskip("torch")

    class Named(dict):
        pass

    class Model(torch.nn.Linear):
        def state_dict(self, *args: Any, **kwargs: Any) -> Named:
            plain = super().state_dict(*args, **kwargs)
            found = Named(plain)
            found._metadata = plain._metadata
            return found

    model, loaded = Model(2, 1), []
    wanted = model.weight.clone()
    taken = Snapshot({"model": model, "counts": {"seen": 1}})
    model._register_load_state_dict_pre_hook(lambda _state, _prefix, local, *_: loaded.append(local["version"]))
    torch.nn.init.zeros_(model.weight)
    put_back({"model": model}, taken.things, taken.tensors)

    assert torch.equal(model.weight, wanted)
    assert loaded == [1]


def test_a_loop_over_another_model_gets_no_state(tmp_path: Path) -> None:
    """The same line, another width: nothing is put back, and nothing is said to have failed."""
    pytest.importorskip("torch")
    text = loop("(1,)", "strike() if len(losses) == 30 else None")
    attempts = Attempts(tmp_path / "healed", text.replace("32", "(48 if os.path.exists('struck') else 32)"))
    second = attempts.both()

    assert "begun 0" in second.out
    assert resumed(second) == []


def test_trainers_go_on_from_their_own_checkpoints(tmp_path: Path) -> None:
    """Lightning, then Hugging Face, each killed once: of each the newest checkpoint of this run is used. A fit that was
    done is run again: its data can't be seen, and it may be another one's turn."""
    needs("lightning", "transformers")
    text = """
import torch
import lightning.pytorch as pl

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        if self.current_epoch == 2 and number == 3:
            strike("one")
        return (self.net(batch[0]) - batch[1]).pow(2).mean()
    def on_train_epoch_start(self):
        print("epoch", self.current_epoch + 1, flush=True)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


pairs = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
quiet = dict(enable_progress_bar=False, logger=False, enable_model_summary=False)
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", default_root_dir="one-out", **quiet)
trainer.fit(Net(), torch.utils.data.DataLoader(pairs, batch_size=8))
print("lightning", trainer.global_step, flush=True)

from transformers import Trainer, TrainingArguments


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = torch.nn.Linear(8, 1), 0
    def forward(self, x=None, labels=None):
        self.calls += 1
        if self.calls == 12:
            strike("two")
        return {"loss": (self.net(x) - labels).pow(2).mean()}


rows = [{"x": x, "labels": y} for x, y in pairs]
more = dict(save_steps=4, report_to=[], use_cpu=True, disable_tqdm=True)
given = TrainingArguments(output_dir="two-out", per_device_train_batch_size=8, num_train_epochs=4, **more)
model = Plain()
trainer = Trainer(model=model, args=given, train_dataset=rows)
trainer.train()
print("transformers", trainer.state.global_step, model.calls)
"""
    attempts = Attempts(tmp_path / "healed", text)
    codes, outs, texts = [], [], []
    for _ in range(3):
        done = attempts.next()
        codes.append(done.code)
        outs.append([line for line in done.out.splitlines() if line.startswith(("epoch", "lightning", "transf"))])
        texts.append([act["text"] for act in resumed(done)])

    assert codes == [-9, -9, 0], done.err
    assert outs[1] == ["epoch 3", "epoch 4", "lightning 20"]
    assert outs[2] == ["epoch 1", "epoch 2", "epoch 3", "epoch 4", "lightning 20", "transformers 20 12"]
    assert "from epoch=1-step=10.ckpt" in texts[1][0]
    assert texts[2] == ["goes on after step 8, from checkpoint-8"]
    assert "whether this is the same one can't be proven" in refused(done)[0]
