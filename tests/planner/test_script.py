"""`holter plan -- python train.py`: the script is watched for three steps, ended there, and the plan is about it."""

from __future__ import annotations

import json
import sys

import pytest

from holter.planner.mapped_heap import can_be_set
from tests.conftest import Holter

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import torch, atexit
from torch import nn

atexit.register(lambda: open("left.txt", "w").write("said goodbye"))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
loss_of = nn.CrossEntropyLoss()
for number in range(6):
    x, y = torch.randn(512, 64), torch.randint(0, 10, (512,))
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    print("step", number, flush=True)
open("trained.txt", "w").write("done")
"""


def test_a_script_is_planned_from_its_first_steps_and_ended(holter: Holter) -> None:
    """The plan is on stdout, the script's words on stderr; what comes after the third step never happens."""
    script = holter.script(SCRIPT)
    done = holter("plan", "--memory", "2GB", "--json", "--", sys.executable, script)
    told = json.loads(done.stdout)

    assert done.returncode == 0
    assert (told["batch"], told["seen"]["model"], told["seen"]["optimizer"]) == (512, "Sequential", "AdamW")
    assert told["seen"]["inputs"] == [[[512, 64], "torch.float32"]]
    assert b"step 1" in done.stderr
    assert b"step 2" not in done.stderr
    assert not (holter.folder / "trained.txt").exists()
    assert not (holter.folder / "left.txt").exists()
    assert told["fits"]
    assert told["largest"]["batch"] > 512


def test_a_command_without_a_training_step_has_no_plan(holter: Holter) -> None:
    """Exit code 7, and what to do instead; nothing on stdout."""
    done = holter("plan", "--", sys.executable, "-c", "print('hello')")

    assert (done.returncode, done.stdout) == (7, b"")
    assert b"no training step" in done.stderr
    assert b"holter.plan" in done.stderr


def test_apply_hands_the_choice_to_a_run(holter: Holter) -> None:
    """A batch that fits is trained as it is, to its end, under a recording."""
    script = holter.script(SCRIPT)
    done = holter("plan", "--memory", "4GB", "--apply", "--", sys.executable, script)

    assert done.returncode == 0, done.stderr.decode()
    assert (holter.folder / "trained.txt").read_text() == "done"
    assert b"it fits as it is" in done.stderr
    assert holter("why").returncode == 0


def test_apply_runs_a_batch_in_parts_when_the_whole_does_not_fit(holter: Holter) -> None:
    """The parts that the plan found, from the first step on: the run's record tells of the split."""
    big = SCRIPT.replace("512, 64", "120000, 64").replace("(512,)", "(120000,)")
    script = holter.script(big)
    done = holter("plan", "--memory", "560MB", "--apply", "--", sys.executable, script, timeout=300)
    said = done.stderr.decode()

    assert done.returncode == 0, said
    assert "applied: each batch in" in said
    assert (holter.folder / "trained.txt").exists()
    assert "split-batch" in (holter("why", "--json").stdout.decode())


HOLES = """
import os, torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
wide = [part for _ in range(6) for part in (nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512))]
model = nn.Sequential(nn.Linear(64, 512), *wide, nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(4):
    x, y = torch.randn(5000, 64), torch.randint(0, 10, (5000,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
open("peak.txt", "w").write(status["VmHWM"].split()[0] + "\\n" + os.environ.get("GLIBC_TUNABLES", ""))
"""


@pytest.mark.skipif(not can_be_set(), reason="needs the GNU C library")
def test_apply_starts_a_batch_with_a_heap_without_holes_where_that_is_what_it_takes(holter: Holter) -> None:
    """The whole batch in one part, and within the memory that it had no room in with the heap as it is."""
    script = holter.script(HOLES)
    free = json.loads(holter("plan", "--memory", "4GB", "--json", "--", sys.executable, script, timeout=300).stdout)
    rows = {row["name"]: row["peak"] for row in free["settings"]}
    memory = (rows["as it is"]["high"] + rows["no holes in the heap"]["high"]) // 2
    done = holter("plan", "--memory", str(memory), "--apply", "--", sys.executable, script, timeout=300)
    peak, tunables = (holter.folder / "peak.txt").read_text().splitlines()

    assert done.returncode == 0, done.stderr.decode()
    assert b"applied: no holes in the heap" in done.stderr
    assert tunables == free["largest_without_holes"]["environ"]["GLIBC_TUNABLES"]
    assert int(peak) * 1024 < memory
