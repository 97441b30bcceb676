"""The peak in the one line is what a container's limit would have to be: held against the kernel's own figure."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.endings.ward import as_text

GROUPS = Path("/sys/fs/cgroup")
MB = 1_000_000

STEPS = """
import holter, os, time
def steps(n):
    for _ in range(n):
        time.sleep(0.05)
        holter.step(loss=1.0)
"""
# A moment between two readings.
SPIKE = STEPS + "steps(30)\nx = b'x' * 700_000_000\ndel x\nsteps(30)\n"
# Pages that four children share with their parent, and that each of them has in its own resident size.
SHARED = (
    STEPS
    + """
big = b'x' * 400_000_000
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        sum(big[::4096])
        time.sleep(8)
        os._exit(0)
    children.append(pid)
steps(120)
for pid in children:
    os.waitpid(pid, 0)
"""
)


@pytest.fixture
def group():
    """A control group without a limit, that only counts."""
    folder = (GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS) / f"holter-peak-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs root and the memory controller: {error}")
    counted = [folder / name for name in ("memory.max_usage_in_bytes", "memory.peak") if (folder / name).exists()]
    if not counted:
        folder.rmdir()
        pytest.skip("this kernel does not keep a group's peak")
    yield folder, counted[0]
    folder.rmdir()


@pytest.mark.root
@pytest.mark.parametrize("text", [SPIKE, SHARED], ids=["spike", "shared"])
def test_the_peak_is_the_kernels(case, group, text: str) -> None:
    """Within 5 % of what the kernel counted for the command, for a short spike and for pages that are shared."""
    folder, counted = group
    one = case(text)
    joins = f"echo $$ > {folder}/cgroup.procs; exec {sys.executable} {one.script}"
    one.start(["sh", "-c", joins]).finish()

    peak_text = re.search(r"peak ([\d.]+) ([MG])B", one.err)
    assert peak_text is not None, as_text(one)
    peak = float(peak_text[1]) * (1000 if peak_text[2] == "G" else 1)

    assert peak == pytest.approx(int(counted.read_text()) / MB, rel=0.05, abs=20)
