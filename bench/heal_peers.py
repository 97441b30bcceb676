"""What Accelerate and Lightning make of the same model under the same cap: another batch size, found by trying.

Used by bench/heal_cuda.py. Both are given what their documentation asks of a user: the training wrapped in a
function, or moved into a LightningModule.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

STEPS = 6


class Outcome:
    """What a peer came to: its batch, how fast it then is, and when its first good step was over."""

    def __init__(self, batch: int, samples_per_s: float, first_s: float, tries: int) -> None:
        self.batch, self.samples_per_s, self.first_s, self.tries = batch, samples_per_s, first_s, tries

    def __str__(self) -> str:
        tries = f", {self.tries} tries" if self.tries else ""
        return (
            f"batch {self.batch}, {self.samples_per_s:.0f} samples/s, first good step after {self.first_s:.1f} s{tries}"
        )


def accelerate(make: Callable[[int], Any], size: int) -> Outcome:
    """`find_executable_batch_size` around a whole training: each failure starts the function again."""
    from accelerate.utils import find_executable_batch_size

    begun, first, tries = time.perf_counter(), [0.0], [0]

    @find_executable_batch_size(starting_batch_size=size)
    def train(batch_size: int) -> tuple[int, float]:
        tries[0] += 1
        training = make(batch_size)
        training.times(steps=1)
        first[0] = time.perf_counter() - begun
        _, took = training.times(steps=STEPS)
        return batch_size, statistics.median(took[2:])

    batch, took = train()
    return Outcome(batch, batch / took, first[0], tries[0])


def lightning(make: Callable[[int], Any], size: int, mode: str) -> Outcome:
    """`BatchSizeFinder` before `fit`: trial steps with batches that double, or double and are then searched between."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import BatchSizeFinder

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    training = make(size)
    began: list[float] = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.batch_size = training.model, 2

        def training_step(self, batch: Any, _n: int) -> Any:
            return training.loss(self.model, batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

        def train_dataloader(self) -> Any:
            rows = [torch.cat([one[part].cpu() for one in training.batches] * 8) for part in (0, 1)]
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows), batch_size=self.batch_size)

        def on_train_batch_end(self, *_: Any) -> None:
            torch.cuda.synchronize()
            began.append(time.perf_counter())

    begun = time.perf_counter()
    module = Module()
    finder = BatchSizeFinder(mode=mode, steps_per_trial=3, init_val=2, max_trials=25)
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=1,
        max_steps=STEPS,
        callbacks=[finder],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module)
    lasts = began[-STEPS:]
    took = statistics.median(after - before for before, after in itertools.pairwise(lasts[1:]))
    return Outcome(module.batch_size, module.batch_size / took, lasts[0] - begun, 0)
