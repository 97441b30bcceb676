"""Training programs as people write them, on a GPU under a memory cap; one JSON line: losses, seconds a step, the peak.

    python bench/loop_programs.py KIND CAP_BYTES          the program that `holter run --heal` is shown
    python bench/loop_programs.py KIND CAP_BYTES MICRO    the same with accumulation by hand, in parts of MICRO

resnet (float16 with a GradScaler), unet (a diffusion step), lstm (a language model, its state carried on), vit
(compiled), lightning, accelerate.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from heal_models import Recurrent, Transformer
from torch import nn
from torch.nn import functional as F  # noqa: N812

STEPS = 14


class Block(nn.Module):
    """Two convolutions with GroupNorm, and a way around."""

    def __init__(self, wide: int, wider: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(wide, wider, 3, padding=1), nn.Conv2d(wider, wider, 3, padding=1)
        self.around = nn.Conv2d(wide, wider, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, wider) for _ in range(2))

    def forward(self, x: Any, time: Any = None) -> Any:
        found = F.silu(self.norms[0](self.one(x)))
        found = found if time is None else found + time[:, : found.shape[1], None, None]
        return self.around(x) + F.silu(self.norms[1](self.two(found)))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        wide = [64, 64, 128, 256, 512]
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.blocks = nn.ModuleList(Block(a, b) for a, b in pairwise(wide))
        self.head = nn.Linear(512, 1000)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = F.max_pool2d(block(x), 2)
        return self.head(x.mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, wide: int = 96) -> None:
        super().__init__()
        self.time = nn.Embedding(1000, 4 * wide)
        self.down = nn.ModuleList([Block(3, wide), Block(wide, 2 * wide), Block(2 * wide, 4 * wide)])
        self.up = nn.ModuleList([Block(6 * wide, 2 * wide), Block(3 * wide, wide)])
        self.out = nn.Conv2d(wide, 3, 1)

    def forward(self, x: Any, time: Any) -> Any:
        time, kept = self.time(time), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = kept.pop()
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1), time)
        return self.out(x)


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cut, self.place = nn.Conv2d(3, 768, 16, 16), nn.Parameter(torch.zeros(1, 196, 768))
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 1000)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(self.cut(x).flatten(2).transpose(1, 2) + self.place).mean(1))


def pictures(size: int, wide: int) -> Callable[[int], tuple[Any, ...]]:
    def draw(n: int) -> tuple[Any, ...]:
        torch.manual_seed(n)
        return torch.randn(size, 3, wide, wide, device="cuda"), torch.randint(1000, (size,), device="cuda")

    return draw


def texts(size: int, length: int, words: int) -> Callable[[int], tuple[Any, ...]]:
    def draw(n: int) -> tuple[Any, ...]:
        torch.manual_seed(n)
        found = torch.randint(words, (size, length + 1), device="cuda")
        return found[:, :-1].contiguous(), found[:, 1:].contiguous()

    return draw


class Clock:
    """Seconds of each step, and its loss."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.took: list[float] = []
        self.began = time.perf_counter()

    def step(self, loss: Any) -> None:
        self.losses.append(loss.item() if hasattr(loss, "item") else loss)
        now = time.perf_counter()
        self.took.append(now - self.began)
        self.began = now


def parts(batch: tuple[Any, ...], micro: int) -> list[tuple[Any, ...]]:
    size = len(batch[0])
    return [tuple(t[n : n + (micro or size)] for t in batch) for n in range(0, size, micro or size)]


def resnet(micro: int, clock: Clock) -> None:
    model, draw = Residual().cuda(), pictures(128, 224)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), torch.amp.GradScaler("cuda")
    for n in range(STEPS):
        total, each = 0.0, parts(draw(n), micro)
        for x, y in each:
            with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
                loss = F.cross_entropy(out, y) / len(each)
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        clock.step(total)


def unet(micro: int, clock: Clock) -> None:
    model, draw = UNet().cuda(), pictures(64, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for n in range(STEPS):
        x, _ = draw(n)
        t, noise = torch.randint(1000, (len(x),), device="cuda"), torch.randn_like(x)
        share = (t.float() / 1000)[:, None, None, None]
        each = parts((x * (1 - share) + noise * share, t, noise), micro)
        optimizer.zero_grad()
        total = 0.0
        for noisy, when, wanted in each:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                found = model(noisy, when)
            loss = F.mse_loss(found.float(), wanted) / len(each)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        clock.step(total)


def lstm(micro: int, clock: Clock) -> None:
    model, draw = Recurrent().cuda(), texts(256, 256, 8000)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for n in range(STEPS):
        optimizer.zero_grad()
        total, each = 0.0, parts(draw(n), micro)
        for x, y in each:
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, 8000), y.view(-1)) / len(each)
            loss.backward()
            total += loss.item()
        optimizer.step()
        clock.step(total)


def vit(micro: int, clock: Clock) -> None:
    model, draw = torch.compile(Vision().cuda()), pictures(256, 224)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for n in range(STEPS):
        optimizer.zero_grad()
        total, each = 0.0, parts(draw(n), micro)
        for x, y in each:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y) / len(each)
            loss.backward()
            total += loss.item()
        optimizer.step()
        clock.step(total)


def lightning(micro: int, clock: Clock) -> None:
    import lightning as L  # noqa: N812

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Transformer()

        def training_step(self, batch: Any, _index: int) -> Any:
            logits = self.net(batch[0])
            return F.cross_entropy(logits.flatten(0, 1), batch[1].flatten())

        def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
            clock.step(outputs["loss"])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    draw = texts(64, 512, 32000)
    batches = [part for n in range(STEPS) for part in parts(draw(n), micro)]
    trainer = L.Trainer(
        max_epochs=1, precision="bf16-mixed", accumulate_grad_batches=64 // (micro or 64), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(batches, batch_size=None))


def accelerate(micro: int, clock: Clock) -> None:
    from accelerate import Accelerator

    draw = texts(64, 512, 32000)
    each = 64 // (micro or 64)
    batches = [part for n in range(STEPS) for part in parts(draw(n), micro)]
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=each)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, torch.utils.data.DataLoader(batches, batch_size=None)
    )
    total, seen = 0.0, 0
    for x, y in loader:
        with accelerator.accumulate(model):
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        total, seen = total + loss.item() / each, seen + 1
        if seen % each == 0:
            clock.step(total)
            total = 0.0


KINDS = {"resnet": 128, "unet": 64, "lstm": 256, "vit": 256, "lightning": 64, "accelerate": 64}


def main() -> None:
    kind, cap = sys.argv[1], int(sys.argv[2])
    if cap:
        torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.get_device_properties(0).total_memory)
    torch.manual_seed(0)
    clock = Clock()
    globals()[kind](int(sys.argv[3]) if len(sys.argv) > 3 else 0, clock)
    print(json.dumps({"losses": clock.losses, "took": clock.took, "peak": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
