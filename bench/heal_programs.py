"""Whole programs under memory caps on a GPU: under `holter run --heal`, beside the best accumulation by hand.

    python bench/heal_programs.py [resnet unet lstm vit lightning accelerate] [nanogpt=FOLDER] [85 70 50 35 20]

The programs are bench/loop_programs.py. FOLDER holds nanoGPT's own train.py, model.py and configurator.py, which is run
as it is: GPT-2's smallest, batch 64 x 1024, eager, on random words. The cap is a share of what the plain step needs. By
hand is the quickest of the sizes of parts that fit under the cap.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop_programs import KINDS, STEPS

CAPS = ("85", "70", "50", "35", "20")
SCRIPT = str(Path(__file__).with_name("loop_programs.py"))
_STEP = re.compile(r"iter \d+: loss ([\d.nainf]+), time ([\d.]+)ms")


@dataclass
class Run:
    losses: list[float]
    took: list[float]
    peak: int
    notes: str

    @property
    def step(self) -> float:
        return statistics.median(self.took[5:])


def start(words: list[str], folder: str, heal: bool) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as home:
        before = [sys.executable, "-m", "holter", "run", "--heal", "--"] if heal else []
        return subprocess.run(
            [*before, sys.executable, *words], cwd=folder, capture_output=True, text=True,
            env={**os.environ, "HOLTER_HOME": home}, timeout=300,
        )  # fmt: skip


def run(kind: str, cap: int, micro: int = 0, heal: bool = False) -> Run | str:
    """What came of a run, or why nothing did."""
    done = start([SCRIPT, kind, str(cap), *([str(micro)] if micro else [])], ".", heal)
    notes = "\n".join(line for line in done.stderr.splitlines() if line.startswith("holter:"))
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"losses"')]
    if not lines:
        return notes or "\n".join(done.stderr.splitlines()[-3:])
    return Run(**json.loads(lines[-1]), notes=notes)


def nanogpt(folder: Path, cap: int, micro: int = 0, heal: bool = False) -> Run | str:
    import torch

    settings = {
        "dataset": "random", "batch_size": micro or 64, "gradient_accumulation_steps": 64 // (micro or 64),
        "block_size": 1024, "compile": False, "max_iters": STEPS - 1, "log_interval": 1, "eval_interval": 1000,
        "eval_iters": 1, "always_save_checkpoint": False, "warmup_iters": 0,
    }  # fmt: skip
    share = cap / torch.cuda.get_device_properties(0).total_memory if cap else 1.0
    code = [
        "import atexit, runpy, sys, torch",
        "atexit.register(lambda: print('peak', torch.cuda.max_memory_allocated()))",
        f"torch.cuda.set_per_process_memory_fraction({share})",
        "sys.argv[0] = 'train.py'",
        "runpy.run_path('train.py', run_name='__main__')",
    ]
    words = [f"--{key}={value}" for key, value in settings.items()]
    done = start(["-c", "\n".join(code), *words], str(folder), heal)
    notes = "\n".join(line for line in done.stderr.splitlines() if line.startswith("holter:"))
    found = _STEP.findall(done.stdout)
    if len(found) < STEPS:
        return notes or "\n".join(done.stderr.splitlines()[-3:])
    peak = int(re.findall(r"peak (\d+)", done.stdout)[-1])
    return Run([float(loss) for loss, _ in found], [float(took) / 1e3 for _, took in found], peak, notes)


def make_words(folder: Path) -> None:
    import numpy as np

    where = folder / "data" / "random"
    where.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name in ("train", "val"):
        draw.integers(0, 50257, 2_000_000).astype(np.uint16).tofile(where / f"{name}.bin")


def by_hand(hands: dict[int, Run | str], size: int, cap: int, once: Callable[[int, int], Run | str]) -> Any:
    """The size of the largest parts that fit, and their run; where smaller ones are quicker, those."""
    best, micro = None, size
    while micro >= 1:
        if micro not in hands:
            hands[micro] = once(0, micro)
        found = hands[micro]
        if isinstance(found, Run) and found.peak <= cap:
            if best is not None and found.step > best[1].step:
                return best
            best = micro, found
        micro //= 2
    return best


def main() -> None:
    wanted = [word for word in sys.argv[1:] if word in KINDS or word.startswith("nanogpt=")] or list(KINDS)
    for word in wanted:
        name, _, folder = word.partition("=")
        if folder:
            make_words(Path(folder))
        size = KINDS.get(name, 64)

        def once(cap: int, micro: int = 0, heal: bool = False, name: str = name, folder: str = folder) -> Run | str:
            return nanogpt(Path(folder), cap, micro, heal) if folder else run(name, cap, micro, heal)

        plain = once(0)
        if isinstance(plain, str):
            print(f"{name}: {plain}", flush=True)
            continue
        print(f"{name}: {plain.step * 1e3:.0f} ms a step, {plain.peak / 1e9:.1f} GB", flush=True)
        hands: dict[int, Run | str] = {size: plain}
        for share in [one for one in sys.argv[1:] if one in CAPS] or CAPS:
            cap = int(share) * plain.peak // 100
            best = by_hand(hands, size, cap, once)
            if best is None:
                print(f"  {share} %: by hand nothing fits", flush=True)
                continue
            ours = once(cap, heal=True)
            if isinstance(ours, str):
                print(f"  {share} %: ended early\n{ours}", flush=True)
                continue
            off = max(abs(a - b) / abs(b) for a, b in zip(ours.losses, plain.losses, strict=True))
            print(
                f"  {share} %: {ours.step * 1e3:.0f} ms, {best[1].step / ours.step:.0%} of by hand (parts of "
                f"{best[0]}), first steps {[round(t, 2) for t in ours.took[:4]]} s, losses {off:.1e} off\n{ours.notes}",
                flush=True,
            )


if __name__ == "__main__":
    main()
