"""An input that an error ended, which a generator or a reader thread caught without a word (Python 3.12 and later)."""

from __future__ import annotations

import pytest

from tests.agent.test_interpreters import interpreter
from tests.conftest import Holter

THREAD = """
import queue, threading, time
import holter

def reader(rows, batches):
    try:
        for row in range(300):
            rows.put(read(row))
    HANDLER
    finally:
        rows.put(None)

def read(row):
    if row == 47:
        raise ValueError("row 47 has no label")
    return row / 300

rows = queue.Queue(8)
threading.Thread(target=reader, args=(rows, 300), daemon=True).start()
while True:
    row = rows.get()
    if row is None:
        break
    holter.step(loss=row)
    time.sleep(0.005)
"""
GENERATOR = """
import time
import holter

def rows(epoch):
    try:
        for row in range(60):
            yield read(epoch, row)
    HANDLER

def read(epoch, row):
    if (epoch, row) in BAD:
        raise ERROR("no label")
    return row / 60

for epoch in range(4):
    for row in rows(epoch):
        holter.step(loss=row)
        time.sleep(0.005)
"""
WATCHING = """
import threading, time
import holter

def watch(seen):
    try:
        while True:
            time.sleep(0.05)
            {}[seen]
    HANDLER

threading.Thread(target=watch, args=("gone",), daemon=True).start()
for row in iter(range(40).__iter__().__next__, 39):
    holter.step(loss=row)
    time.sleep(0.005)
"""
SKIPPING = """
import time
import holter

def rows():
    for row in range(200):
        try:
            if row in (47, 199):
                raise ValueError("no label")
            yield row
        except Exception:
            continue

for row in rows():
    holter.step(loss=row)
    time.sleep(0.005)
"""
SILENT = "except Exception:\n        pass"


def verdict(holter: Holter, script: str, handler: str = SILENT, **words: str) -> dict[str, object]:
    for word, text in words.items():
        script = script.replace(word, text)
    python = interpreter("3.13")
    holter.run(python, holter.script(script.replace("HANDLER", handler)))
    return holter.why()


def test_a_reader_thread_that_ends_with_an_error_is_named(holter: Holter) -> None:
    """The run stopped early: the line that raised, and the `except` that it ended in."""
    found = verdict(holter, THREAD)
    first = found["findings"][0]

    assert (found["ending"]["kind"], first["cause"]) == ("stopped-early", "early-stop.swallowed-error")
    assert first["culprit"]["code"] == 'raise ValueError("row 47 has no label")'
    assert "except Exception:" in str(first["evidence"])
    assert "47 steps" in first["claim"]


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception as error:\n        print('reader stopped:', error)",
        "except Exception as error:\n        rows.put(None); failed = error",
        "except ValueError:\n        pass",
    ],
    ids=["says so", "hands it on", "expects it"],
)
def test_a_thread_that_says_hands_on_or_expects_its_error_is_left_alone(holter: Holter, handler: str) -> None:
    """What is told, kept or meant is no swallowed error."""
    assert verdict(holter, THREAD, handler)["findings"] == []


def test_a_generator_that_cuts_one_epoch_short_is_told_though_the_run_went_on(holter: Holter) -> None:
    """The rest of that pass was never trained on, and the epochs after it hide it."""
    found = verdict(holter, GENERATOR, BAD="[(2, 20)]", ERROR="ValueError")
    first = found["findings"][0]

    assert (found["ending"]["kind"], first["cause"]) == ("completed", "early-stop.swallowed-error")
    assert "after step 140" in first["claim"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [("[(2, 59), (3, 59)]", "ValueError"), ("[(3, 20)]", "IndexError")],
    ids=["each pass", "no more to read"],
)
def test_a_generator_whose_passes_are_meant_to_end_so_is_left_alone(holter: Holter, bad: str, error: str) -> None:
    """An error in pass after pass is how it finds its end, and so are the errors that say that there is no more."""
    assert verdict(holter, GENERATOR, BAD=bad, ERROR=error)["findings"] == []


def test_a_generator_that_leaves_out_bad_rows_is_left_alone(holter: Holter) -> None:
    """Nothing ended: the next row came, or the last one was bad."""
    assert verdict(holter, SKIPPING)["findings"] == []


def test_a_wait_for_a_thread_that_ended_with_an_error_says_which(holter: Holter) -> None:
    """No mark is put when it ends, so that the loop waits for ever: the error that nobody saw is the reason."""
    script = THREAD.replace("    finally:\n        rows.put(None)\n", "").replace("HANDLER", SILENT)
    holter("run", "--on-hang", "stop", "--", interpreter("3.13"), holter.script(script))
    first = holter.why()["findings"][0]

    assert first["cause"] == "hang.deadlock"
    assert "it ended with ValueError at train.py:" in first["claim"]


def test_a_thread_that_only_watches_ends_no_input(holter: Holter) -> None:
    """Its error is its own: it hands nothing on, and the steps do not come from it."""
    assert verdict(holter, WATCHING)["findings"] == []
