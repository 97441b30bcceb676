"""`holter plan -- python train.py`: the script is watched for three steps, ended there, and the plan is about it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from holter.planner.mapped_heap import WORDS, can_be_set, setting
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
    plan = json.loads(done.stdout)

    assert done.returncode == 0
    assert (plan["batch"], plan["seen"]["model"], plan["seen"]["optimizer"]) == (512, "Sequential", "AdamW")
    assert plan["seen"]["inputs"] == [[[512, 64], "torch.float32"]]
    assert b"step 1" in done.stderr
    assert b"step 2" not in done.stderr
    assert not (holter.folder / "trained.txt").exists()
    assert not (holter.folder / "left.txt").exists()
    assert plan["fits"]
    assert plan["largest"]["batch"] > 512


def test_what_is_being_done_is_told_from_the_first_second(holter: Holter, wait_for: Any) -> None:
    """Before the script has imported a thing; then model, first answer and largest batch, each when it is known."""
    err = holter.folder / "err"
    with err.open("wb") as stream:
        begun = time.monotonic()
        process = holter.start("plan", "--memory", "2GB", "--", sys.executable, holter.script(SCRIPT), stderr=stream)
        wait_for(lambda: b"holter: started the command and waits" in err.read_bytes(), "the first line")
        first = time.monotonic() - begun
        out, _ = process.communicate(timeout=600)
    told = [line for line in err.read_text().splitlines() if line.startswith("holter: ")]

    assert first < 5  # a Python starts within it, on a busy machine too; PyTorch does not
    assert [
        any(words in line for line in told) for words in ("saw Sequential", "first answer: a batch of 512", "largest")
    ]
    assert told.index(next(line for line in told if "first answer" in line)) == 2
    assert b"first answer" not in out


def test_a_long_silence_is_broken(holter: Holter) -> None:
    """A script that loads for long: what is waited for is told again within 20 s."""
    done = holter("plan", "--", sys.executable, "-c", "import time; time.sleep(17)")

    assert b"still waits for its first three training steps" in done.stderr


def test_a_script_whose_first_step_does_not_fit_is_planned_before_it(holter: Holter) -> None:
    """It is started once more, and ended before its model is called: what that needs is drawn, not run."""
    fails = SCRIPT.replace("    loss.backward()", "    raise MemoryError")
    done = holter("plan", "--memory", "2GB", "--json", "--", sys.executable, holter.script(fails))
    plan = json.loads(done.stdout)

    assert done.returncode == 0
    assert (plan["batch"], plan["seen"]["optimizer"], plan["seen"]["peak"]) == (512, "AdamW", 0)
    assert b"the first steps ended with code 1" in done.stderr
    assert done.stderr.count(b"Traceback") == 1


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
    done = holter("plan", "--memory", "560MB", "--apply", "--", sys.executable, script, timeout=600)
    stderr = done.stderr.decode()

    assert done.returncode == 0, stderr
    assert "applied: each batch in" in stderr
    assert (holter.folder / "trained.txt").exists()
    assert "split-batch" in (holter("why", "--json").stdout.decode())


APPLY = """
import json, sys
from holter.commands.plan import _apply
sys.exit(_apply(json.loads(sys.argv[1]), tuple(sys.argv[2:])))
"""
SHOW = (
    "import os; open('heap.txt', 'w').write(os.environ.get('GLIBC_TUNABLES', '') + os.environ.get('HOLTER_SPLIT', ''))"
)


@pytest.mark.parametrize(
    ("fits", "mapped_fits", "wanted"), [(True, True, ""), (False, True, WORDS), (False, False, "2")]
)
def test_apply_prefers_a_heap_without_holes_to_parts(
    holter: Holter, fits: bool, mapped_fits: bool, wanted: str
) -> None:
    """It keeps the whole batch in one; and what fits as it is is left as it is."""
    rows = [
        {"name": "4 parts", "accumulate": 4, "fits": True, "environ": {"HOLTER_SPLIT": "4"}},
        {"name": "2 parts", "accumulate": 2, "fits": True, "environ": {"HOLTER_SPLIT": "2"}},
        {"name": "no holes in the heap", "accumulate": 1, "fits": mapped_fits, "environ": setting({})},
        {"name": "bf16", "accumulate": 1, "fits": True, "environ": {}},
    ]
    words = [sys.executable, holter.script(APPLY), json.dumps({"fits": fits, "settings": rows})]
    done = subprocess.run([*words, sys.executable, "-c", SHOW], cwd=holter.folder, env=holter.environ(), timeout=600)

    assert done.returncode == 0
    assert (holter.folder / "heap.txt").read_text() == wanted


@pytest.mark.skipif(not can_be_set(), reason="needs the GNU C library")
def test_a_process_that_was_started_with_a_heap_without_holes_is_planned_so(holter: Holter) -> None:
    """Its peak is lower, and nothing is left to be set."""
    words = ["--memory", "2GB", "--json", "--", sys.executable, holter.script(SCRIPT)]
    done = holter("plan", *words, env=setting({}))
    plan = json.loads(done.stdout)

    assert "largest_without_holes" not in plan
    assert "no holes in the heap" not in [row["name"] for row in plan["settings"]]
