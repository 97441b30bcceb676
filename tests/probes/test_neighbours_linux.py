"""Other programs that hold the machine's memory."""

from __future__ import annotations

import os
import sys
import time

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.probes.neighbours_linux import Neighbours
from holter.probes.probe import Tree

# More than other tests beside this one take: only the largest are named.
LARGE = "x = b'x' * (1200 << 20); print(1, flush=True); import time; time.sleep(600)"
SMALL = "print(1, flush=True); import time; time.sleep(600)"


def test_a_large_program_beside_the_run_is_named(start):
    """Who it is, whose it is, how much it holds and since when; the run's own processes are none of them."""
    ours, other = start(LARGE), start(LARGE)

    found = {row["pid"]: row for row in Neighbours().read(Tree(ours.pid, [ours.pid]))["list"]}

    assert ours.pid not in found
    row = found[other.pid]
    assert row["rss"] > 1200 << 20
    assert row["command"].startswith(os.path.basename(sys.executable))
    assert row["user"]
    assert abs(row["started"] - time.time()) < 600


def test_small_programs_are_none(start):
    """Every machine has dozens of them."""
    ours, other = start(SMALL), start(SMALL)

    found = Neighbours().read(Tree(ours.pid, [ours.pid])).get("list", [])

    assert other.pid not in [row["pid"] for row in found]


def test_secrets_of_a_strangers_command_are_masked(start):
    """Its first words alone are kept, with what looks like a secret masked."""
    ours, _ = start(SMALL), start("import os, sys; os.execv(sys.executable, "
        f"[sys.executable, '-c', {LARGE!r}, '--token=hf_abcdefghijklmnopqrstu'])")  # fmt: skip

    found = Neighbours().read(Tree(ours.pid, [ours.pid]))["list"]

    assert not any("hf_abc" in row.get("command", "") for row in found)
