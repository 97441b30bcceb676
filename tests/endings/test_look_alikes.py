"""What looks like a hang and is none: a real silence longer than any that is told, all at once, and not a word."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
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
    "stopped-by-the-user": PURE
    + """
import os

while not os.path.exists("enough"):
    steps(1)
""",
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, wait_for: Callable[..., object]) -> Iterator[dict[str, Case]]:
    """Every script at once; one of them is stopped for half a minute, as with Ctrl-Z, and goes on."""
    folder: Path = tmp_path_factory.mktemp("look-alikes")
    cases = {name: Case(folder / name, text.replace("SECONDS", str(SECONDS))) for name, text in SCRIPTS.items()}
    cases["busy-child"].holter.script(f"{COMPUTE}\ncompute({SECONDS})\n", "child.py")
    for one in cases.values():
        one.start()
    stopped = cases["stopped-by-the-user"].holter
    timeline = stopped.record() / "timeline"
    wait_for(lambda: timeline.exists() and len(stopped.timeline("steps")) > 2, "steps of the run that is to be stopped")
    pid = stopped.events("spawned")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(SECONDS - 8)
    os.kill(pid, signal.SIGCONT)
    stopped_steps = len(stopped.timeline("steps"))
    wait_for(lambda: len(stopped.timeline("steps")) > stopped_steps + 2, "steps after it goes on")
    (stopped.folder / "enough").touch()
    for one in cases.values():
        one.finish()
    yield cases
    for one in cases.values():
        one.holter.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_long_silence_that_is_no_hang_is_left_alone(healthy: dict[str, Case], name: str) -> None:
    """The run completes, is called healthy, and no stall was told on the way."""
    case = healthy[name]

    assert case.holter.events("stall") == [], as_text(case)
    assert (case.kind(), case.illnesses(), case.code) == ("completed", [], 0), as_text(case)
    assert "no progress" not in case.err
