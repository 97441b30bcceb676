"""A thread that waits for another one, against waits for something that takes long by nature."""

from __future__ import annotations

from typing import Any

import pytest

from holter.recorder.hang.stalls import stands_at_a_lock


def frame(file: str, code: str = "") -> dict[str, Any]:
    return {"file": file, "line": 1, "function": "f", "user": file.startswith("/home"), "code": code}


def main(*frames: dict[str, Any]) -> dict[str, Any]:
    return {"name": "MainThread", "main": True, "frames": list(frames)}


USER = frame("/home/u/train.py", "save(model)")
LOCK = frame("/lib/python3.11/threading.py")


@pytest.mark.parametrize(
    "frames", [(LOCK, USER), (frame("/home/u/train.py", "with self.a:"),), (frame("/home/u/train.py", "q.get()"),)]
)
def test_a_lock_is_one(frames: tuple[dict[str, Any], ...]) -> None:
    """In a lock, a queue or a wait, with no CPU used."""
    assert stands_at_a_lock([main(*frames)], 0.0)


def test_a_lock_with_the_cpu_in_use_is_none() -> None:
    """Another thread computes what this one waits for."""
    assert not stands_at_a_lock([main(LOCK, USER)], 0.4)


@pytest.mark.parametrize("file", ["/lib/python3.11/ssl.py", "/lib/python3.11/multiprocessing/queues.py"])
def test_another_thread_in_a_transfer_is_what_it_waits_for(file: str) -> None:
    """An upload, or batches of another process, may take their time."""
    other = {"name": "Thread-1", "frames": [frame(file), USER]}

    assert not stands_at_a_lock([other, main(LOCK, USER)], 0.0)


def test_another_thread_that_sleeps_is_what_it_waits_for() -> None:
    """It wakes by itself; one that stands at a lock as well does not."""
    asleep = {"name": "Thread-1", "frames": [frame("/home/u/train.py", "time.sleep(60)")]}
    locked = {"name": "Thread-1", "frames": [frame("/home/u/train.py", "with b:")]}

    assert not stands_at_a_lock([asleep, main(LOCK, USER)], 0.0)
    assert stands_at_a_lock([locked, main(LOCK, USER)], 0.0)


def test_no_stacks_prove_nothing() -> None:
    """A process that could not be read, or that stands in its own code, is not at a lock."""
    assert not stands_at_a_lock([], 0.0)
    assert not stands_at_a_lock([main(USER)], 0.0)
