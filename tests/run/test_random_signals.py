"""A signal to whomever, at whatever instant: the exit code is right, no line is lost, the record opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[2] / "bench" / "kills.py"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the children of a process are found by /proc")
def test_twenty_signals_at_random_moments() -> None:
    """Kills, stops and hang-ups to trainer, recorder and keeper; `make kills` sends a thousand."""
    done = subprocess.run([sys.executable, KILLS, "20"], capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
