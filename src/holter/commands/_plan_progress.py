"""What `holter plan` says while the plan is made: what it waits for, its first answer as soon as there is one, and at
least one line in each quarter of a minute.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from holter.commands._tell import tell_on_stderr
from holter.planner.progress import PROGRESS
from holter.units import count, duration, size

_LOOK_S = 0.2
_SILENCE_S = 15.0


def follow(process: subprocess.Popen[bytes], folder: Path, *, again: bool = False) -> int:
    """Wait for the command to end, and tell meanwhile what its planner is at; gives its exit code."""
    began = told_at = time.monotonic()
    at = "waits for the first call of its model" if again else "waits for its first three training steps"
    tell_on_stderr(f"started the command {'once more ' if again else ''}and {at}")
    seen = 0
    while True:
        code = _ended(process)
        stages = _stages(folder)
        for stage in stages[seen:]:
            words, at = _words(stage)
            if words:
                tell_on_stderr(words)
                told_at = time.monotonic()
        seen = len(stages)
        if code is not None:
            return code
        if time.monotonic() - told_at >= _SILENCE_S:
            told_at = time.monotonic()
            tell_on_stderr(f"{duration(told_at - began)}: still {at}")


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(_LOOK_S)
    return None


def _stages(folder: Path) -> list[dict[str, Any]]:
    """The lines that are whole; the last may be on its way."""
    found = []
    with contextlib.suppress(OSError):
        for line in (folder / PROGRESS).read_text().split("\n")[:-1]:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def _words(stage: dict[str, Any]) -> tuple[str, str]:
    """What is told of a stage at once (nothing of some), and what it is at from then on."""
    name = stage.get("stage")
    if name == "seen":
        words = f"saw {stage['model']} with a batch of {count(stage['batch'])}; draws its step"
        return words, "draws the step, and measures small ones"
    if name == "peak":
        peak = stage["peak"]
        fits = "fits" if stage["fits"] else "does not fit"
        takes = f"takes {size(peak['likely'])}, at most {size(peak['high'])}"
        words = f"first answer: a batch of {count(stage['batch'])} {takes}"
        return f"{words}, and {fits} into {size(stage['memory'])}", "looks for the largest batch that fits"
    if name == "largest":
        return f"the largest batch that fits is {count(stage['batch'])}; compares settings", "compares settings"
    return "", f"compares settings: {stage.get('name', '')}"
