"""A few hostile records of the many that `make fuzz` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_hostile_records_are_read_without_a_traceback_within_300_mb_and_write_nothing() -> None:
    """Changed in every way that a seed can think of, and read by every command that reads; an hour of it: make fuzz."""
    done = subprocess.run([sys.executable, "bench/fuzz_records.py", "6"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "serve's desk" in done.stdout
