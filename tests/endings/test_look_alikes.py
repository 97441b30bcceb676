"""What looks like a hang and is none: a real silence longer than any that is told, all at once, and not a word."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holter.recorder.hang.detector import IN_A_LONG_PHASE, SHORTEST
from tests.endings.ward import TORCH, Case, as_text

# Beyond the silence that is told at once, and beyond the one after which a phase that may take long is looked at.
SECONDS = int(SHORTEST + IN_A_LONG_PHASE) + 6

PURE = """
import os
import time
import holter


def steps(n, pause=0.1):
    for _ in range(n):
        time.sleep(pause)
        holter.step(loss=1.0)

"""
# For two fifths of the time: far more than a tree that does nothing takes, and less than one that could be starved.
COMPUTE = """
import time


def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.process_time()
        while time.process_time() - begun < 0.02:
            sum(range(1000))
        time.sleep(0.03)

"""

SCRIPTS = {
    "validation-in-eval-mode": TORCH
    + """
def validate():
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 64))
        time.sleep(SECONDS)
    model.train()


for epoch in range(2):
    for _ in range(25):
        train_step(torch.randn(8, 64), 0.1)
    if epoch == 0:
        validate()
""",
    "first-step": TORCH
    + """
for step in range(25):
    if step == 0:
        time.sleep(SECONDS)
    train_step(torch.randn(8, 64), 0.1)
""",
    "checkpoint": TORCH
    + """
def save_checkpoint(epoch):
    torch.save(model.state_dict(), f"model-{epoch}.pt")
    time.sleep(SECONDS)


for epoch in range(2):
    for _ in range(25):
        train_step(torch.randn(8, 64), 0.1)
    if epoch == 0:
        save_checkpoint(epoch)
""",
    "busy-validation": PURE
    + COMPUTE
    + """
steps(25)
compute(SECONDS)
steps(5)
""",
    "slow-write": PURE
    + """
steps(25)
with open("predictions.bin", "wb") as out:
    for _ in range(SECONDS):
        out.write(os.urandom(600_000))
        out.flush()
        time.sleep(1)
steps(5)
""",
    "slower-and-slower": PURE
    + """
pause = 0.1
while pause < 3:
    steps(1, pause)
    pause *= 1.1
""",
    "pause-at-each-epochs-end": PURE
    + """
for epoch in range(5):
    steps(20)
    time.sleep(6)
""",
    "busy-child": PURE
    + """
import subprocess, sys
steps(25)
subprocess.run([sys.executable, "child.py"])
steps(5)
""",
    "stopped-by-the-user": PURE + "\nsteps(100)\n",
}


def before_others() -> None:
    """To what runs beside the tests a run that computes may lose its cores, and then is rightly told so."""
    try:
        os.nice(-10)
    except PermissionError:
        pass


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    """Every script at once; one of them is stopped for half a minute, as with Ctrl-Z, and goes on."""
    folder: Path = tmp_path_factory.mktemp("look-alikes")
    cases = {name: Case(folder / name, text.replace("SECONDS", str(SECONDS))) for name, text in SCRIPTS.items()}
    cases["busy-child"].holter.script(f"{COMPUTE}\ncompute({SECONDS})\n", "child.py")
    for name, one in cases.items():
        one.start(before=before_others if name.startswith("busy") else None)
    stopped = cases["stopped-by-the-user"].holter
    deadline = time.monotonic() + 30
    while not (spawned := stopped.events("spawned")) and time.monotonic() < deadline:
        time.sleep(0.1)
    pid = spawned[0]["pid"]
    time.sleep(4)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(SECONDS - 8)
    os.kill(pid, signal.SIGCONT)
    for one in cases.values():
        one.finish()
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_long_silence_that_is_no_hang_is_left_alone(healthy: dict[str, Case], name: str) -> None:
    """The run completes, is called healthy, and no stall was told on the way."""
    case = healthy[name]
    told = case.verdict()

    assert case.holter.events("stall") == [], as_text(case)
    assert (told["ending"]["kind"], told["healthy"], case.code) == ("completed", True, 0), as_text(case)
    assert "no progress" not in case.err
