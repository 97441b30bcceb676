"""What looks like a hang and is none: a minute of real silence each, all at once, and not a word about it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endings.ward import TORCH, Case, as_text

SECONDS = 60

PURE = """
import os
import time
import holter


def steps(n, pause=0.1):
    for _ in range(n):
        time.sleep(pause)
        holter.step(loss=1.0)

"""

SCRIPTS = {
    "validation-in-eval-mode": TORCH
    + """
def validate():
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 64))
        time.sleep(60)
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
        time.sleep(60)
    train_step(torch.randn(8, 64), 0.1)
""",
    "checkpoint": TORCH
    + """
def save_checkpoint(epoch):
    torch.save(model.state_dict(), f"model-{epoch}.pt")
    time.sleep(60)


for epoch in range(2):
    for _ in range(25):
        train_step(torch.randn(8, 64), 0.1)
    if epoch == 0:
        save_checkpoint(epoch)
""",
    "busy-validation": PURE
    + """
steps(25)
until = time.monotonic() + 60
while time.monotonic() < until:
    sum(range(1000))
steps(5)
""",
    "slow-write": PURE
    + """
steps(25)
with open("predictions.bin", "wb") as out:
    for _ in range(60):
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
    pause *= 1.06
""",
    "pause-at-each-epochs-end": PURE
    + """
for epoch in range(7):
    steps(20)
    time.sleep(6)
""",
    "busy-child": PURE
    + """
import subprocess, sys
steps(25)
subprocess.run([sys.executable, "-c", "import time; t = time.time()\\nwhile time.time() < t + 40: sum(range(1000))"])
steps(5)
""",
    "stopped-by-the-user": PURE + "\nsteps(100)\n",
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    """Every script at once; one of them is stopped for half a minute, as with Ctrl-Z, and goes on."""
    folder: Path = tmp_path_factory.mktemp("look-alikes")
    cases = {name: Case(folder / name, text).start() for name, text in SCRIPTS.items()}
    stopped = cases["stopped-by-the-user"].holter
    deadline = time.monotonic() + 30
    while not (spawned := stopped.events("spawned")) and time.monotonic() < deadline:
        time.sleep(0.1)
    pid = spawned[0]["pid"]
    time.sleep(4)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(30)
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
