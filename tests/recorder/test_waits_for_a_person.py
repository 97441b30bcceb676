"""A program that waits for someone at the keyboard or before a window does not hang."""

from __future__ import annotations

import pytest

from holter.recorder.hang.stalls import waits_for_a_person


def _threads(file: str) -> list[dict[str, object]]:
    return [{"main": True, "frames": [{"file": file}, {"file": "/home/me/train.py"}]}]


@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/python3.11/tkinter/__init__.py",
        "/venv/lib/python3.11/site-packages/matplotlib/backends/backend_qt.py",
        "/usr/lib/python3.11/pdb.py",
    ],
)
def test_a_window_or_a_debugger_is_a_person(file: str) -> None:
    """plt.show() at the end and a breakpoint in the middle are waits for someone."""
    assert waits_for_a_person(_threads(file), {})


def test_reading_the_terminal_is_a_person() -> None:
    """`input()` reads from a terminal, as the kernel says."""
    assert waits_for_a_person(_threads("/home/me/train.py"), {"syscall": "read", "path": "/dev/pts/3"})


def test_a_lock_or_a_silent_pipe_is_no_person() -> None:
    """The look-alikes: a lock, a pipe, and a module of the user's own that is called code."""
    assert not waits_for_a_person(_threads("/usr/lib/python3.11/threading.py"), {"syscall": "futex"})
    assert not waits_for_a_person(_threads("/home/me/train.py"), {"syscall": "read", "path": "pipe:[123]"})
    assert not waits_for_a_person(_threads("/home/me/barcode.py"), {})
