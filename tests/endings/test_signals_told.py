"""Ends that came from outside: who sent the signal, and that it was no illness."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.endings.ward import as_text

STEPS = """
import time
import holter

for _ in range(2000):
    time.sleep(0.02)
    holter.step(loss=1.0)
"""


@pytest.mark.parametrize(
    ("name", "kind", "cause"),
    [
        ("SIGINT", "interrupted", ""),
        ("SIGTERM", "killed", "external.signal"),
        ("SIGHUP", "killed", "external.hangup"),
    ],
)
def test_a_signal_is_told_with_its_sender(case, wait_for, name: str, kind: str, cause: str) -> None:
    """The ending follows from the signal, and its sender is named by pid."""
    one = case(STEPS).start()
    wait_for(lambda: (one.holter.record() / "timeline").exists() and one.holter.timeline("steps"), "the first steps")

    one.process.send_signal(getattr(signal, name))
    one.finish()

    assert (one.kind(), one.first()["cause"], one.code) == (kind, cause, 128 + getattr(signal, name)), as_text(one)
    assert f"pid {os.getpid()}" in str(one.verdict()["ending"]["evidence"])


@pytest.mark.parametrize("around", [True, False], ids=["around-holter", "within"])
def test_a_time_limit_is_told_as_one(case, around: bool) -> None:
    """timeout(1) around Holter or around the command."""
    one = case(STEPS)
    limit = ["timeout", "3"]
    one.run(prefix=limit if around else [], words=[*([] if around else limit), sys.executable, one.script])

    assert (one.kind(), one.first()["cause"]) == ("killed", "external.time-limit"), as_text(one)
    assert one.code == 124
