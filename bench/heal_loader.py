"""Whole scripts under memory caps on a GPU, run by `holter run --heal`, beside the best accumulation by hand.

    python bench/heal_loader.py [transformer] [conv] [lstm] [85] [70] [50] [35] [rounds=3]

The script is bench/loop_capped.py, five passes over a loader. Where most of a batch would be computed twice, the run
goes on with smaller batches from its loader; the last pass is what a long training comes to. With several rounds ours
and by hand are run in turns, and the medians are told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = str(Path(__file__).with_name("loop_capped.py"))
KINDS = {"transformer": 64, "conv": 256, "lstm": 256}
CAPS = ("85", "70", "50", "35")  # per cent of what the plain step needs


def run(*words: str, heal: bool = False) -> tuple[dict[str, Any] | None, str]:
    """One run of the script: what it printed, and what Holter said."""
    with tempfile.TemporaryDirectory() as home:
        before = [sys.executable, "-m", "holter", "run", "--heal", "--"] if heal else []
        done = subprocess.run(
            [*before, sys.executable, SCRIPT, *words], capture_output=True, text=True,
            env={**os.environ, "HOLTER_HOME": home},
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    said = [line for line in done.stderr.splitlines() if "holter" in line.lower()]
    return (json.loads(lines[-1]) if lines else None), "\n".join(said if lines else done.stderr.splitlines()[-5:])


def middle(runs: list[tuple[dict[str, Any] | None, str]]) -> tuple[dict[str, Any] | None, str]:
    """The run with the median of the last passes, or one that failed."""
    by_time = sorted(runs, key=lambda one: one[0]["passes"][-1] if one[0] is not None else 0.0)
    return by_time[0 if by_time[0][0] is None else len(runs) // 2]


def main() -> None:
    rounds = next((int(word.partition("=")[2]) for word in sys.argv if word.startswith("rounds=")), 1)
    for kind in [one for one in sys.argv[1:] if one in KINDS] or list(KINDS):
        plain, said = run(kind, "0")
        if plain is None:
            print(f"{kind}: {said}")
            continue
        need = plain["peak"]
        print(f"{kind}: {need / 1e9:.1f} GB, {plain['samples'] / plain['passes'][-1]:.0f} samples/s without a cap")
        for share in [one for one in sys.argv[1:] if one in CAPS] or CAPS:
            cap = int(share) * need // 100
            found = [
                (run(kind, str(cap), heal=True), run(kind, str(cap), str(KINDS[kind] // 2))) for _ in range(rounds)
            ]
            ours, said = middle([one for one, _ in found])
            hand, _ = middle([one for _, one in found])
            if ours is None or hand is None:
                print(f"  {share} %: {'ours failed: ' + said if ours is None else 'by hand nothing fits'}", flush=True)
                continue
            speed = hand["passes"][-1] / ours["passes"][-1]
            off = max(abs(a - b) / abs(b) for a, b in zip(ours["losses"], plain["losses"], strict=True))
            rate = ours["samples"] / ours["passes"][-1]
            print(
                f"  {share} %: last pass {rate:.0f} samples/s, {speed:.0%} of the best by hand "
                f"(micro-batch {hand['micro']}); passes {[round(t, 2) for t in ours['passes']]} s, by hand "
                f"{hand['passes'][-1]:.2f} s; mean losses of passes {off:.1e} off\n{said}",
                flush=True,
            )


if __name__ == "__main__":
    main()
