"""Trainers on top of PyTorch under the agent: Lightning, Hugging Face and Accelerate, in real small runs."""

import pytest

from holter.record import ring_format as f
from tests.needs import needs

from .agent_run import Run, run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LIGHTNING = """
import logging, warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl, torch
from lightning.pytorch.callbacks import EarlyStopping
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
from torch.utils.data import DataLoader, TensorDataset

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
        print(repr(loss.item()))
        return loss

    def validation_step(self, batch, index):
        self.log("val", ((self.layer(batch[0]) - batch[1]) ** 2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

pl.seed_everything(3, verbose=False)
x = torch.randn(32, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
quiet = dict(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
pl.Trainer(max_epochs=3, **quiet).fit(Model(), loader, loader)
stop = EarlyStopping("val", patience=1, min_delta=1e9)
pl.Trainer(max_epochs=9, callbacks=[stop], **quiet).fit(Model(), loader, loader)
"""

TRANSFORMERS = """
import torch, transformers
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        loss = ((out - labels) ** 2).mean()
        if self.training:
            print(repr(loss.item()))
        return {"loss": loss, "logits": out}

class Enough(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.epoch >= 2

set_seed(3)
x = torch.randn(32, 4)
data = [{"x": row, "labels": row.sum().unsqueeze(0)} for row in x]
quiet = dict(
    per_device_train_batch_size=8, report_to=[], disable_tqdm=True, use_cpu=True, eval_strategy="epoch",
    save_strategy="epoch", logging_strategy="no", dataloader_pin_memory=False,
)
for epochs, callbacks in ((2, []), (5, [Enough()])):
    args = TrainingArguments("out", num_train_epochs=epochs, **quiet)
    Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=callbacks).train()
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(32, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
model = torch.nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
for epoch in range(2):
    for a, b in loader:
        with accelerator.accumulate(model):
            loss = ((model(a) - b) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> Run:
    needs("lightning")
    return run(tmp_path_factory.mktemp("lightning"), LIGHTNING)


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    needs("transformers")
    return run(tmp_path_factory.mktemp("transformers"), TRANSFORMERS)


def plans(done: Run, source: str) -> list[tuple[int, int, int]]:
    found = [e for e in done.kind("plan") if e["source"] == source]
    return [(e["steps"], e["epochs"], e["steps_per_epoch"]) for e in found]


def test_lightning_steps_and_plan(lightning: Run) -> None:
    """Steps come from PyTorch, the plan from the Trainer, and our guard has nothing to catch."""
    assert lightning.code == 0, lightning.err
    assert lightning.words is not None

    assert lightning.kind("guest-error") == []
    assert lightning.words[f.W_STEP] == 12 + 8
    assert plans(lightning, "lightning") == [(12, 3, 4), (48, 9, 4)]
    assert [e["epoch"] for e in lightning.kind("epoch")] == [1, 2, 3, 1, 2]


def test_lightning_early_stopping_is_deliberate(lightning: Run) -> None:
    """Only the training that `EarlyStopping` ended says that it was stopped."""
    assert [(e["by"], e["epoch"]) for e in lightning.kind("early-stop")] == [("EarlyStopping", 2)]
    assert [(e["steps"], e["steps_planned"]) for e in lightning.kind("fit-end")] == [(12, 12), (8, 36)]


def test_lightning_phases(lightning: Run) -> None:
    """Validation and checkpoints between steps have their time."""
    assert sum(slot.spent["validation"] for slot in lightning.slots[1:]) > 0
    assert sum(slot.spent["checkpoint"] for slot in lightning.slots) > 0


def test_lightning_is_untouched(lightning: Run, tmp_path) -> None:
    """Losses to the last bit and all output are the same without the agent."""
    plain = run(tmp_path, LIGHTNING, agent=False)

    assert plain.out == lightning.out
    assert plain.err == lightning.err


def test_transformers_steps_and_plan(transformers: Run) -> None:
    """Steps come from PyTorch, plan and epochs from the Trainer, and our guard has nothing to catch."""
    assert transformers.code == 0, transformers.err
    assert transformers.words is not None

    assert transformers.kind("guest-error") == []
    assert transformers.words[f.W_STEP] == 8 + 8
    assert plans(transformers, "transformers") == [(8, 2, 4), (28, 5, 4)]
    assert [e["epoch"] for e in transformers.kind("epoch")] == [1, 2, 1, 2]


def test_transformers_stop_names_the_callback(transformers: Run) -> None:
    """A callback that ended the training is named, and a training that came to its end names nobody."""
    assert [(e["by"], e["epoch"]) for e in transformers.kind("early-stop")] == [("Enough", 2)]
    assert [(e["steps"], e["steps_planned"]) for e in transformers.kind("fit-end")] == [(8, 8), (8, 20)]


def test_transformers_phases(transformers: Run) -> None:
    """Evaluation and checkpoints between steps have their time."""
    assert sum(slot.spent["validation"] for slot in transformers.slots) > 0
    assert sum(slot.spent["checkpoint"] for slot in transformers.slots) > 0


def test_accelerate_needs_nothing(tmp_path) -> None:
    """Under Accelerate, each update of the weights is one step, also when gradients are accumulated."""
    needs("accelerate")
    done = run(tmp_path, ACCELERATE)
    assert done.code == 0, done.err
    assert done.words is not None

    assert done.words[f.W_STEP] == 8
    assert done.kind("guest-error") == []
