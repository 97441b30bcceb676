"""Calls that may never come back."""

from __future__ import annotations

import threading

import pytest

from holter.probes.aside import Aside, Late


def test_answer_and_error():
    """An answer is given, and an error is raised, as if the call had been made here."""
    aside: Aside[int] = Aside()

    assert aside.ask(lambda: 5, 30) == 5
    with pytest.raises(ZeroDivisionError):
        aside.ask(lambda: 1 // 0, 30)
    assert aside.ask(lambda: 6, 30) == 6


def test_late_call_is_made_once():
    """While a call is out no second is made, and its answer comes with a later question."""
    back = threading.Event()
    calls = []

    def call() -> str:
        calls.append(1)
        back.wait(60)
        return "at last"

    aside: Aside[str] = Aside()
    for _ in range(3):
        with pytest.raises(Late):
            aside.ask(call, 0.001)
    back.set()

    assert aside.ask(call, 30) == "at last"
    assert len(calls) == 1
