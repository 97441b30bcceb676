"""The oldest and the newest versions that docs/support.md claims, each in an environment of its own.

    make matrix                      # all
    make matrix NAMES="keras-oldest"

In each environment small trainings run plain, under `holter run` and under `holter run --heal`: what they print must be
the same to the last digit, the adapters must be in, the steps counted, and no error of ours noted. (Our own tests would
not do: they need a Python that Holter itself runs on, and the training's may be older.) Environments lie in
.venvs/matrix and are kept; one that can't be made is said, with the reason. Ends with 1 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venvs" / "matrix"
HOLTER = Path(sys.executable).parent / "holter"
WAYS = {"plain": None, "watched": ["run", "--quiet", "--"], "heal": ["run", "--quiet", "--heal", "--"]}


@dataclass(frozen=True)
class Environment:
    """A Python, what is installed in it one after the other, and what runs there."""

    name: str
    python: str
    installs: tuple[str, ...]  # each the words of one `pip install`
    trainings: tuple[str, ...]
    needs_gb: int = 0  # said beforehand: builds with CUDA are large

    @property
    def interpreter(self) -> str:
        return str(HOME / self.name / "bin" / "python") if self.installs else sys.executable


# torch's builds on PyPI before 2.13 are CUDA's, and bring NVIDIA's libraries with them.
ENVIRONMENTS = (
    Environment("keras-oldest", "3.9", ("tensorflow-cpu==2.16.1 keras==3.0.5",), ("keras", "tape"), needs_gb=2),
    Environment(
        "torch-oldest",
        "3.9",
        ("torch==2.2.2 numpy<2", "lightning==2.0.9 setuptools<80 transformers==4.40.2 accelerate==0.30.1"),
        ("torch", "lightning", "transformers"),
        needs_gb=6,
    ),
    Environment("newest", "3.11", (), ("torch", "keras", "tape", "lightning", "transformers")),  # that of `make test`
    Environment("python-newest", "3.13", ("tensorflow-cpu==2.21.0 keras==3.15.1",), ("keras", "tape"), needs_gb=2),
)

TORCH = """
import torch
from torch import nn
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
data = torch.utils.data.TensorDataset(torch.randn(480, 12), torch.randint(0, 3, (480,)))
for epoch in range(3):
    for x, y in torch.utils.data.DataLoader(data, batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(loss.item().hex())
print([p.detach().double().sum().item().hex() for p in model.parameters()], torch.rand(1).item().hex())
"""

KERAS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(5)
tf.config.experimental.enable_op_determinism()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(256, 10)).astype("float32"), rng.integers(0, 2, size=(256, 1)).astype("float32")
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dropout(0.2),
                          keras.layers.Dense(1, activation="sigmoid")])
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, epochs=4, batch_size=32, validation_split=0.25, verbose=0)
print({name: [float(v).hex() for v in values] for name, values in history.history.items()})
print([float(w.numpy().astype("float64").sum()).hex() for w in model.weights])
"""

TAPE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(5)
x = np.random.default_rng(0).normal(size=(64, 10)).astype("float32")
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - 1.0))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
for run in (step, tf.function(step)):
    for _ in range(15):
        print(float(run(tf.constant(x))).hex())
"""

LIGHTNING = """
import logging, warnings
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import torch, lightning.pytorch as pl
pl.seed_everything(3)
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)
    def training_step(self, batch, _n):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        print(loss.item().hex())
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(200, 6), torch.randn(200, 2))
trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False)
model = Model()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=20, shuffle=True))
print([p.detach().double().sum().item().hex() for p in model.parameters()])
"""

TRANSFORMERS = """
import tempfile, warnings
warnings.simplefilter("ignore")
import torch
from transformers import Trainer, TrainingArguments
torch.manual_seed(4)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)
    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}
data = [{"x": torch.randn(6), "labels": torch.randn(2)} for _ in range(120)]
with tempfile.TemporaryDirectory() as folder:
    asked = TrainingArguments(folder, num_train_epochs=3, per_device_train_batch_size=10, report_to=[],
                              save_strategy="no", logging_steps=5, disable_tqdm=True, use_cpu=True)
    model = Model()
    trainer = Trainer(model, asked, train_dataset=data)
    trainer.train()
print([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
print([p.detach().double().sum().item().hex() for p in model.parameters()])
"""

# What a training prints, and the adapters that must have come in.
TRAININGS = {
    "torch": (TORCH, ("torch",)),
    "keras": (KERAS, ("keras", "tensorflow")),
    "tape": (TAPE, ("keras", "tensorflow")),
    "lightning": (LIGHTNING, ("torch", "lightning.pytorch")),
    "transformers": (TRANSFORMERS, ("torch", "transformers.trainer")),
}
LEAST_STEPS = 20  # each of them takes more
TIMES = re.compile(r"'(?:train_runtime|train_\w+_per_second)': [^,}]+")  # what the Trainer prints and the clock makes


def interpreter(version: str) -> str | None:
    """This version as itself, and not as a shim that picks another."""
    wanted = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    found = shutil.which(f"python{version}")
    return str(wanted[-1]) if wanted else found


def make(environment: Environment) -> str:
    """Make the environment where it is not there yet; returns why it can't be, or nothing."""
    if not environment.installs:
        return ""
    folder = HOME / environment.name
    done = folder / "installed"
    wanted = "\n".join(environment.installs)
    if done.exists() and done.read_text() == wanted:
        return ""
    python = interpreter(environment.python)
    if python is None:
        return f"there is no Python {environment.python} here"
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if free_gb < 2 * environment.needs_gb:
        return f"it needs {environment.needs_gb} GB of disk, {free_gb:.0f} GB are free"
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    for words in environment.installs:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        ran = subprocess.run([*pip, *words.split()], capture_output=True, text=True)
        if ran.returncode:
            return f"pip install {words}: {ran.stderr.strip().splitlines()[-1][:200]}"
    done.write_text(wanted)
    return ""


def train(environment: Environment, training: str) -> list[str]:
    """What is wrong with one training in this environment; an empty list when it is the same in all three ways."""
    script, adapters = TRAININGS[training]
    python = environment.interpreter
    printed: dict[str, str] = {}
    wrong: list[str] = []
    for way, words in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="holter-matrix-") as home:
            path = Path(home, "train.py")
            path.write_text(script)
            command = [python, str(path)] if words is None else [str(HOLTER), *words, python, str(path)]
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLTER", "PYTHON"))}
            environ = {**kept, "HOLTER_HOME": f"{home}/holter", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            ran = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=900)
            printed[way] = TIMES.sub("", ran.stdout)
            if ran.returncode:
                last = ran.stderr.strip().splitlines()[-1:] or [""]
                wrong.append(f"{training}, {way}: exit code {ran.returncode}: {last[0][:200]}")
            elif words is not None:
                wrong += [f"{training}, {way}: {what}" for what in _record(Path(home, "holter"), adapters)]
    if not wrong:
        wrong = [f"{training}, {way}: prints something else" for way in printed if printed[way] != printed["plain"]]
    return wrong


def _record(home: Path, adapters: tuple[str, ...]) -> list[str]:
    """What the record of a run lacks."""
    run = home / "runs" / "r-0001"
    lines = [json.loads(line) for path in run.rglob("*.jsonl") for line in path.read_text().splitlines() if line]
    seen = {line["framework"]: line for line in lines if line.get("k") == "adapter"}
    wrong = [f"no adapter for {name}" for name in adapters if name not in seen]
    wrong += [f"{n}: {one.get('because')}" for n, one in seen.items() if one["state"] != "on"]
    wrong += [f"an error of ours: {line['where']}: {line['error']}" for line in lines if line.get("k") == "guest-error"]
    steps = sum(line["n"] for line in lines if line.get("k") == "steps")
    return wrong + ([f"{steps} steps counted"] if steps < LEAST_STEPS else [])


def versions(environment: Environment) -> str:
    asked = ["torch", "tensorflow-cpu", "tensorflow_cpu", "keras", "lightning", "transformers", "accelerate"]
    code = (
        "import importlib.metadata as m, sys\n"
        f"have = {{d.metadata['Name'].lower(): d.version for d in m.distributions()}}\n"
        f"print(', '.join(n.partition('-')[0] + ' ' + have[n] for n in {asked} if n in have))"
    )
    return subprocess.run([environment.interpreter, "-c", code], capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(one.name for one in ENVIRONMENTS))
    asked = parser.parse_args()
    bad = False
    for environment in ENVIRONMENTS:
        if asked.names and environment.name not in asked.names:
            continue
        head = f"{environment.name}: Python {environment.python}"
        declined = make(environment)
        if declined:
            print(f"{head}: not run: {declined}", flush=True)
            continue
        wrong = [line for training in environment.trainings for line in train(environment, training)]
        verdict = "same in all three ways" if not wrong else f"{len(wrong)} differences"
        print(f"{head}, {versions(environment)}: {', '.join(environment.trainings)}: {verdict}")
        print(*(f"    {line}" for line in wrong), sep="\n", end="\n" if wrong else "", flush=True)
        bad |= bool(wrong)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
