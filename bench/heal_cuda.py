"""A step under memory caps on a GPU: split in place, beside the best accumulation by hand. Prints a table.

    python bench/heal_cuda.py [transformer] [conv] [lstm] [peers]

For each model the memory of a plain step is measured first; then the process may have 85, 70, 50 and 35 % of it.
A backward that fails in the script's own graph ends the run, and the next attempt is split from its first step on:
that is done here as well, and said. With `peers`, Accelerate's and Lightning's searches for a batch size are run under
the same caps.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import heal_peers
import torch
from heal_models import KINDS

from holter.agent.core.guard import Guard
from holter.agent.torch.heal.split import Split

CAPS = (0.85, 0.70, 0.50, 0.35)
STEPS = 8


class Agent:
    """Keeps what the reflex says."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.beat = type("Beat", (), {"steps": 0})
        self.guard, self.heal = Guard(self.say), "safe"

    def say(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


class Training:
    """A model, its optimizer and a few batches, the same each time."""

    def __init__(self, kind: str, size: int | None = None) -> None:
        make, data, self.loss = KINDS[kind]
        torch.manual_seed(0)
        self.model = make().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batches = [tuple(part[:size] for part in data()) for _ in range(2)]
        self.size = len(self.batches[0][0])
        torch.manual_seed(1)

    def step(self, n: int, micro: int = 0) -> float:
        batch = self.batches[n % 2]
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        micro = micro or self.size
        for begin in range(0, self.size, micro):
            part = [t[begin : begin + micro] for t in batch]
            loss = self.loss(self.model, part, len(part[0]) / self.size)
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        return float(total)

    def times(self, micro: int = 0, steps: int = STEPS) -> tuple[list[float], list[float]]:
        losses, took = [], []
        for n in range(steps):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            losses.append(self.step(n, micro))
            torch.cuda.synchronize()
            took.append(time.perf_counter() - begun)
        return losses, took


def clear() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.reset_peak_memory_stats()


def by_hand(kind: str, cap: int) -> tuple[int, float]:
    """The best micro-batch under the cap, found by trying all."""
    total = torch.cuda.get_device_properties(0).total_memory
    best = (0, float("inf"))
    micro = KINDS[kind][1]()[0].shape[0]
    while micro >= 1:
        training = None
        clear()
        torch.cuda.set_per_process_memory_fraction(cap / total)
        try:
            training = Training(kind)
            _, took = training.times(micro, 5)
            best = min(best, (micro, statistics.median(took[2:])), key=lambda one: one[1])
            slower = statistics.median(took[2:]) > 1.3 * best[1]
        except torch.OutOfMemoryError:
            slower = False
        del training
        if slower:
            break
        micro //= 2
    return best


def main() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for kind in [one for one in sys.argv[1:] if one in KINDS] or list(KINDS):
        clear()
        training = Training(kind)
        losses, took = training.times()
        need = torch.cuda.max_memory_allocated()
        plain, size = statistics.median(took[2:]), training.size
        del training
        print(
            f"{kind}: batch {size}, plain step {plain * 1e3:.0f} ms, {need / 1e9:.1f} GB, {size / plain:.0f} samples/s"
        )
        clear()
        training, agent = Training(kind), Agent()
        originals = {type(part): type(part).__dict__.get("__call__") for part in training.model.modules()}
        Split(agent, torch, lambda: False).watch([training.model])
        armed_losses, took = training.times()
        armed = statistics.median(took[2:])
        print(
            f"  armed, no cap: {armed * 1e3:.1f} ms ({armed / plain - 1:+.1%}), "
            f"losses {_off(armed_losses, losses):.1e} off"
        )
        _unwatch(originals)
        del training
        for share in CAPS:
            micro, hand = by_hand(kind, int(share * need))
            clear()
            torch.cuda.set_per_process_memory_fraction(share * need / total)
            for asked in ("1", "2"):
                os.environ["HOLTER_SPLIT"] = asked
                agent = Agent()
                try:
                    training = Training(kind)
                    split = Split(agent, torch, lambda: False)
                    split.watch([training.model])
                    found, took = training.times(steps=26)
                    ours = statistics.median(took[-8:])
                    chunks = [f"{fields['rows']}" for _, fields in agent.events if "rows" in fields]
                    print(
                        f"  {share:.0%}: ours {size / ours:.0f} samples/s, first step {took[0]:.2f} s, "
                        f"by hand {size / hand:.0f} (micro-batch {micro}): {hand / ours:.0%} of it, "
                        f"losses {_off(found, losses):.1e} off, chunks of {', then '.join(chunks) or 'all'}, "
                        f"steps {[round(t * 1e3) for t in took]} ms, "
                        f"{[fields.get('keeps') or fields.get('because') for _, fields in agent.events][:2]}"
                    )
                    break
                except torch.OutOfMemoryError as error:
                    print(f"  {share:.0%}: out of memory: {str(error)[:90]}; {agent.events[-1:]}")
                finally:
                    _unwatch(originals)
                    training = split = None
                    gc.collect()
                    torch.cuda.empty_cache()
            if "peers" in sys.argv:
                beside(kind, size, share * need / total)


def beside(kind: str, size: int, cap: float) -> None:
    """What the peers come to under the same cap."""
    tries: dict[str, Callable[[], heal_peers.Outcome]] = {
        "Accelerate": lambda: heal_peers.accelerate(lambda rows: Training(kind, rows), size),
        "Lightning, power": lambda: heal_peers.lightning(lambda rows: Training(kind, rows), size, "power"),
        "Lightning, binsearch": lambda: heal_peers.lightning(lambda rows: Training(kind, rows), size, "binsearch"),
    }
    for name, attempt in tries.items():
        clear()
        torch.cuda.set_per_process_memory_fraction(cap)
        try:
            print(f"       {name}: {attempt()}", flush=True)
        except Exception as error:  # a peer that fails is a result as well
            print(f"       {name}: {type(error).__name__}: {str(error)[:90]}", flush=True)


def _off(found: list[float], wanted: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(found, wanted, strict=False))


def _unwatch(originals: dict[type, Any]) -> None:
    for cls, call in originals.items():
        if call is not None:
            cls.__call__ = call
        elif "__call__" in cls.__dict__:
            del cls.__call__


if __name__ == "__main__":
    main()
