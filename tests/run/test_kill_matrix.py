"""Whoever is killed at whatever instant: the record opens, at most a second is missing, the training is unharmed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holter.diagnosis.core.doctor import verdict
from holter.record.events.timeline import Sample, StepWindow
from holter.record.reader import open_record
from tests.conftest import HOLTER

TRAIN = """
import os, sys, time
import holter
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(1, 1700):
    time.sleep(0.001)
    holter.step(loss=1.0 / i)
    os.write(log, b"%d %d\\n" % (i, time.monotonic_ns()))
    print("step", i, flush=True)
os.write(log, b"done\\n")
"""

_IN_A_SLOT = 25  # steps of a millisecond that the agent hands over together
KILLS = 15  # for each of the three victims; `make kills` sends a thousand, of more kinds


def one_kill(folder: Path, victim: str, seed: int) -> float:
    """Start a run, kill at a random instant, and hold the record against the script's own log.

    Gives the seconds before the kill of which the record knows nothing.
    """
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    log = folder / "log"
    environ = {**os.environ, "HOLTER_HOME": str(folder / "home")}
    command = [*HOLTER, "run", "-q", "--", sys.executable, str(folder / "train.py"), str(log)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    keeper = folder / "home/runs/r-0001/keeper.jsonl"
    trainer = int(keeper.read_text().split('"pid":')[1].split(",")[0])
    time.sleep(random.Random(seed).uniform(0.0, 1.5))
    killed_at = time.monotonic_ns()
    if victim in ("recorder", "both"):
        os.kill(process.pid, signal.SIGKILL)
    if victim in ("trainer", "both"):
        os.kill(trainer, signal.SIGKILL)
    process.stdout.read()
    process.wait(600)

    if victim == "recorder":
        assert log.read_text().endswith("done\n"), "the training was harmed by the recorder's death"
    record = open_record(folder / "home/runs/r-0001")
    ending = verdict(record).ending
    known = max((line.last or 0 for line in record.of(StepWindow)), default=0)
    safe = [tuple(map(int, line.split())) for line in log.read_text().splitlines() if line[0].isdigit()]
    looks = [line.m for line in record.of(Sample) if line.m is not None]
    looked = max(looks, default=0.0) if victim != "trainer" else killed_at * 1e-9
    due = max((step for step, at in safe if at <= looked * 1e9), default=0) - _IN_A_SLOT
    assert known >= due, f"{victim}: step {due} was done before the recorder last looked, but {known} is the last known"
    assert record.of(Sample) or victim != "trainer", "no sample was kept"
    if victim == "trainer":
        assert (ending.kind, ending.signal) == ("killed", "SIGKILL")
    elif victim == "recorder":
        assert (ending.kind, ending.exit_code) == ("completed", 0)
    return killed_at * 1e-9 - max(looked, safe[0][1] * 1e-9)


@pytest.mark.parametrize("victim", ["trainer", "recorder", "both"])
def test_every_record_opens_after_a_kill_at_a_random_instant(tmp_path: Path, victim: str) -> None:
    """Fifteen kills of each kind, at instants spread over the run.

    What was done when the recorder last looked is known; it looks each second, where a busy machine lets it.
    """
    with ThreadPoolExecutor(6) as pool:
        kills = [pool.submit(one_kill, tmp_path / str(n), victim, n) for n in range(KILLS)]
        missing = sorted(kill.result() for kill in kills)

    assert missing[KILLS // 3] <= 1.0
