"""Trainings that the kernel kills at random moments under `holter run --heal`, and what they end with.

    python bench/resumes.py [KINDS...] [--rounds 25] [--seed 0]

Each round runs one program (a loop with `holter.resumable`, a Keras fit, Lightning, the Hugging Face Trainer; two
stages each, dropout, a schedule, early stopping where the trainer has it) in a memory cgroup. At a step drawn from a
seed the script fills the memory, and the kernel kills it. Its weights at the end are held
against those of the same program that nobody killed. Needs root and a cgroup v1 memory controller.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from wild import CGROUP, make_group, remove_group

LONGEST_S = 240.0
HEADROOM_MB = 150
CALM = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}

# What all programs share: `at(step)` is called once in each step, `over(arrays)` at the end of a stage.
HEAD = """
import os, time
import numpy as np

hold, steps = [], 0

def at():
    global steps
    steps += 1
    time.sleep(0.004)  # as if a step took longer: copies are made in a share of the time
    if steps == int(os.environ["KILLED_AT"]) and not os.path.exists("struck"):
        open("struck", "w").close()
        while True:
            hold.append(b"x" * (1 << 20))
            time.sleep(0.001)

def over(stage, arrays):
    flat = np.concatenate([np.asarray(one, dtype="float64").ravel() for one in arrays])
    np.save("stage%d.npy" % stage, flat)
    print("stage", stage, steps, flush=True)
"""
PROGRAMS = {
    "loop": """
import torch, holter
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
for stage in (1, 2):
    data = torch.utils.data.TensorDataset(torch.randn(400, 8), stage * torch.ones(400, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(5))
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for epoch in holter.resumable(range(8), every=0.05, model=model, optimizer=optimizer, scheduler=scheduler):
        for x, y in holter.resumable(loader):
            loss = (model(x + 0.01 * torch.randn_like(x)) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            at()
        scheduler.step()
    over(stage, [weight.detach() for weight in model.parameters()])
""",
    "keras": """
import keras

for stage in (1, 2):
    keras.utils.set_random_seed(stage)
    x = np.random.RandomState(stage).rand(640, 8).astype("float32")
    rate = keras.optimizers.schedules.CosineDecay(0.01, 400)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    stop = keras.callbacks.EarlyStopping("loss", patience=4, restore_best_weights=True)
    each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: at())
    model.fit(x, x.sum(1), epochs=9, batch_size=16, verbose=0, shuffle=False, callbacks=[stop, each])
    over(stage, model.get_weights())
""",
    "lightning": """
import torch
import lightning.pytorch as pl

torch.set_num_threads(1)

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        at()
        loss = (self.net(batch[0]) - batch[1]).pow(2).mean()
        self.log("loss", loss, on_epoch=True)
        return loss
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 3)]

for stage in (1, 2):
    torch.manual_seed(stage)
    pairs = torch.utils.data.TensorDataset(torch.randn(400, 8), stage * torch.ones(400, 1))
    stop = pl.callbacks.EarlyStopping("loss", patience=6)
    trainer = pl.Trainer(max_epochs=9, accelerator="cpu", default_root_dir="out%d" % stage, callbacks=[stop],
                         enable_progress_bar=False, logger=False, enable_model_summary=False)
    model = Net()
    trainer.fit(model, torch.utils.data.DataLoader(pairs, batch_size=10))
    over(stage, [weight.detach() for weight in model.parameters()])
""",
    "transformers": """
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    def forward(self, x, labels=None):
        found = self.net(x)
        return {"loss": (found - labels).pow(2).mean(), "logits": found}

class Each(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        at()

for stage in (1, 2):
    torch.manual_seed(stage)
    rows = [{"x": x, "labels": torch.ones(1) * stage} for x in torch.randn(400, 8)]
    model = Net()
    args = TrainingArguments(output_dir="out%d" % stage, num_train_epochs=8, per_device_train_batch_size=10, seed=stage,
                             save_steps=25, save_total_limit=2, report_to=[], disable_tqdm=True, use_cpu=True,
                             dataloader_pin_memory=False, logging_steps=1000)
    Trainer(model=model, args=args, train_dataset=rows, callbacks=[Each()]).train()
    over(stage, [weight.detach() for weight in model.parameters()])
""",
}
STEPS = {"loop": 640, "keras": 720, "lightning": 720, "transformers": 640}


@dataclass
class Round:
    """What came of one run."""

    code: int
    attempts: int
    causes: list[str]
    acts: list[str]
    weights: list[list[float]]
    seconds: float
    stderr: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*", default=[], help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if os.geteuid() or not CGROUP.is_dir():
        print("needs root and a cgroup v1 memory controller")
        return 2
    failed = 0
    print(f"{'program':13} {'rounds':>6} {'same weights':>12} {'most off':>9} {'done anew, median':>18}  failed")
    for kind in args.kinds or PROGRAMS:
        failed += _rounds(kind, args.rounds, random.Random(f"{kind} {args.seed}"))
    return 1 if failed else 0


def _rounds(kind: str, rounds: int, draw: random.Random) -> int:
    whole = run(kind, 0)
    if whole.code:
        print(f"{kind:13} could not be run: {whole.stderr[-300:]}")
        return 1
    off, again, wrong = [], [], []
    for number in range(rounds):
        at = draw.randrange(1, STEPS[kind])
        found = run(kind, at)
        if found.code or found.attempts < 2 or len(found.weights) != len(whole.weights):
            wrong.append(f"{number} at step {at}: code {found.code}, {found.attempts} attempts, {found.causes}")
            continue
        off.append(max(_off(one, other) for one, other in zip(found.weights, whole.weights, strict=True)))
        again.append(found.seconds / whole.seconds)
        if off[-1] > 1e-6:
            wrong.append(f"{number} at step {at}: weights off by {off[-1]:.1e}; {found.causes} {'; '.join(found.acts)}")
    same = sum(one <= 1e-6 for one in off)
    times = f"{median(again):.2f} × the time" if again else "–"
    print(f"{kind:13} {rounds:6} {same:12} {max(off, default=0.0):9.1e} {times:>18}  {len(wrong)}")
    for one in wrong:
        print(f"    {one}")
    return len(wrong)


def _off(one: list[float], other: list[float]) -> float:
    """How far weights are from others, against the largest of these."""
    largest = max(map(abs, other), default=0.0) or 1.0
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=0.0) / largest


def run(kind: str, killed_at: int) -> Round:
    """One run of a program, killed at a step or not at all (0)."""
    with tempfile.TemporaryDirectory(prefix="resumes-") as folder:
        (Path(folder) / "train.py").write_text(HEAD + PROGRAMS[kind])
        group = CGROUP / f"holter-resumes-{os.getpid()}"
        make_group(group, _limit(kind) << 20)
        begun = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "holter", "run", "--heal", "--", sys.executable, "train.py"], cwd=folder,
                env={**os.environ, **CALM, "HOLTER_HOME": f"{folder}/home", "KILLED_AT": str(killed_at)},
                preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
                capture_output=True, text=True, timeout=LONGEST_S,
            )  # fmt: skip
            code, stderr = done.returncode, done.stderr
        except subprocess.TimeoutExpired as late:
            code, stderr = -99, str(late.stderr)
        seconds = time.monotonic() - begun
        remove_group(group)
        return _round(Path(folder), code, stderr, seconds)


def _limit(kind: str) -> int:
    """The container's size in MB: what the frameworks take, and some room."""
    return {"loop": 450, "keras": 900, "lightning": 700, "transformers": 900}[kind] + HEADROOM_MB


def _round(folder: Path, code: int, stderr: str, seconds: float) -> Round:
    import numpy as np

    runs = sorted((folder / "home" / "runs").glob("r-*"))
    causes = re.findall(r"Started again for ([\w.-]+)", stderr)
    acts = []
    for record in runs:
        for line in (record / "events.jsonl").read_text().splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("k") in ("intervention", "declined"):
                acts.append(f"{event['k']} {event.get('act', '')}: {event.get('because') or event.get('text', '')}")
    weights = [np.load(path).tolist() for path in sorted(folder.glob("stage*.npy"))]
    return Round(code, len(runs), causes, acts, weights, seconds, stderr)


if __name__ == "__main__":
    sys.exit(main())
