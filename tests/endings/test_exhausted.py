"""A disk that really runs out of space."""

from __future__ import annotations

import sys

import pytest

from tests.endings.ward import as_text

WRITE = """
import sys
import time
import holter

with open(sys.argv[1] + "/metrics.log", "w") as log:
    for i in range(100):
        log.write("x" * 1_000_000)  # here
        log.flush()
        holter.step(loss=1.0)
        time.sleep(0.1)
"""


@pytest.mark.root
def test_a_full_disk(case, small_disk) -> None:
    """A write that failed for want of space is told as that, at its line; others that run out are in tests/cures."""
    one = case(WRITE)
    one.run(words=[sys.executable, one.script, str(small_disk)])

    assert (one.kind(), one.first()["cause"]) == ("exception", "disk-full"), as_text(one)
    assert one.first()["culprit"]["line"] == one.line("# here")
    assert one.first()["grade"] == "established"
    assert str(small_disk) in one.first()["claim"]
