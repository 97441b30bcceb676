"""Runs a script with the agent in its environment, and reads back what the agent wrote."""

import json
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from holter.record import ring_format as f

INJECT = Path(f.__file__).resolve().parents[1] / "agent" / "inject"


class Slot(NamedTuple):
    """One slot: the steps since the one before, of which `step` is the last."""

    step: int
    count: int
    epoch: int
    spent: dict[str, float]
    loss: float | None
    lr: float
    batch: int


class Run(NamedTuple):
    """What a script printed, and what its agent recorded."""

    code: int
    out: str
    err: str
    events: list[dict[str, Any]]
    words: list[int] | None
    slots: list[Slot]

    def slot(self, step: int) -> Slot:
        """The slot that holds a step."""
        return next(slot for slot in self.slots if slot.step >= step)

    def kind(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind, in order."""
        return [event for event in self.events if event["k"] == kind]


def run(folder: Path, script: str, agent: bool = True, **environ: str) -> Run:
    """Run the text of a script in `folder`, as `train.py`, with or without the agent."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(script))
    agents = folder / "guests"
    agents.mkdir(exist_ok=True)
    env = environ_of(agents if agent else None, environ)
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    return Run(done.returncode, done.stdout, done.stderr, *recorded(agents))


def environ_of(agents: Path | None, more: dict[str, str]) -> dict[str, str]:
    """The environment of a script, with the folder that its agent writes into."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HOLTER", "PYTHONPATH"))}
    env.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", **{"CUDA_VISIBLE_DEVICES": "", **more})
    if agents is not None:
        env.update(HOLTER_AGENT_DIR=str(agents), PYTHONPATH=str(INJECT))
    return env


def recorded(agents: Path) -> tuple[list[dict[str, Any]], list[int] | None, list[Slot]]:
    """What the agents of a folder have written: their events, and the words and slots of the last ring."""
    events: list[dict[str, Any]] = []
    words, slots = None, []
    for file in sorted(agents.iterdir()):
        if file.suffix == ".jsonl":
            events += [json.loads(line) for line in file.read_text().splitlines()]
        elif file.suffix == ".ring":
            words, slots = read_ring(file.read_bytes())
    return events, words, slots


# The scripts of several folders, one after the other.
_TOGETHER = """
import os, runpy
for folder in FOLDERS:
    os.chdir(folder)
    print("in", folder, flush=True)
    runpy.run_path("train.py", run_name="__main__")
"""


def printed_alone(scripts: dict[Path, str], **environ: str) -> dict[Path, str]:
    """What scripts print without the agent, each in its folder; one process imports the framework for all of them."""
    for folder, script in scripts.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(textwrap.dedent(script))
    folders = list(scripts)
    text = _TOGETHER.replace("FOLDERS", str([str(folder) for folder in folders]))
    done = run(folders[0] / "together", text, agent=False, **environ)
    assert done.code == 0, done.err
    found, rest = {}, done.out
    for folder, following in zip(folders, [*folders[1:], None], strict=True):
        rest = rest.partition(f"in {folder}\n")[2]
        found[folder] = rest.partition(f"in {following}\n")[0] if following else rest
    return found


def read_ring(data: bytes) -> tuple[list[int], list[Slot]]:
    """The header's words and the slots of steps, each with its checksum verified."""
    words = list(struct.unpack_from(f"<{f.WORDS}Q", data, f.WORDS_AT))
    slots = []
    for number in range(min(words[f.W_HEAD], f.CAPACITY)):
        at = f.HEADER + number * f.SLOT
        assert f.CRC.unpack_from(data, at + f.CRC_AT)[0] == crc32(data[at : at + f.CRC_AT])
        _seq, _t, step, kind, flags, epoch, count, batch, *rest = f.BODY.unpack_from(data, at)
        if kind == f.STEP and count:  # one without steps holds only what came after the last
            spent = {name: ns * 1e-9 for name, ns in zip(f.PHASES[2:], rest[5:12], strict=True)}
            loss, _low, _high, lr, _norm = rest[13:]
            slots.append(Slot(step, count, epoch, spent, loss if flags & f.F_LOSS_KNOWN else None, lr, batch))
    return words, slots
