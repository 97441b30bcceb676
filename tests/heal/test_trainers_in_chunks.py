"""Lightning, Accelerate and the Hugging Face Trainer go on in chunks, with each sample in the model once a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.agent_run import Run, run

pytestmark = pytest.mark.torch

START = """
import json, os, sys, warnings
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
FITS, SEEN = int(os.environ["FITS"]), []
x = torch.randint(0, 50, (96, 12), generator=torch.Generator().manual_seed(0))
data = TensorDataset(x, x.roll(-1, 1))


def look(batch):
    SEEN.append(len(batch))
    if len(batch) > FITS:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(50, 16), nn.Linear(16, 32), nn.Linear(32, 50)

    def forward(self, x):
        look(x)
        return self.head(self.inner(self.embed(x)).tanh())


def done(model, *figures):
    weights = [p.double().abs().sum().item() for p in model.parameters()]
    print(json.dumps({"weights": weights, "figures": [float(one) for one in figures], "last": SEEN[-10:]}))
"""
SCRIPTS = {
    "lightning": """
import logging
import lightning as L

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        logits = self.net(batch[0])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[1].flatten())
        self.log("loss", loss)
        self.log("right", (logits.argmax(-1) == batch[1]).float().mean())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


model = Module()
trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, accelerator="cpu")
trainer.fit(model, DataLoader(data, batch_size=24))
done(model, trainer.callback_metrics["loss"], trainer.callback_metrics["right"])
""",
    "accelerate": """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=24))
total = 0.0
for epoch in range(2):
    for a, b in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(a).flatten(0, 1), b.flatten())
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach().float()
done(model, total)
""",
    "transformers": """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Words(GPT2LMHeadModel):
    def forward(self, input_ids=None, attention_mask=None, labels=None, **more):
        look(input_ids)
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **more)


class Padded(torch.utils.data.Dataset):
    def __len__(self):
        return len(x)

    def __getitem__(self, n):
        labels = x[n].clone()
        labels[12 - n % 5 :] = -100
        return {"input_ids": x[n], "attention_mask": torch.ones_like(x[n]), "labels": labels}


model = Words(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                         attn_pdrop=0, bos_token_id=0, eos_token_id=0))
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=24, num_train_epochs=2, report_to=[],
                              save_strategy="no", disable_tqdm=True, use_cpu=True, seed=0, logging_steps=100)
done(model, Trainer(model=model, args=arguments, train_dataset=Padded()).train().training_loss)
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_trainer_goes_on_in_chunks(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name)

    def train(folder: str, fits: int, **environ: str) -> Run:
        made = run(tmp_path / folder, START + SCRIPTS[name], FITS=str(fits), **environ)
        assert made.code == 0, made.err
        return made

    plain, healed = train("plain", 24), train("healed", 6, HOLTER_HEAL="1")
    wanted, found = (json.loads(one.out.splitlines()[-1]) for one in (plain, healed))

    assert found["weights"] == pytest.approx(wanted["weights"], rel=1e-4)
    assert found["figures"] == pytest.approx(wanted["figures"], rel=1e-4)
    assert [act["keeps"] for act in healed.kind("intervention")] == ["exact"]
    assert healed.kind("declined") == healed.kind("guest-error") == []
    assert sum(found["last"][-5:]) == 24  # the last step's batch, in chunks
