"""Crashes in compiled code, with the Python line that they happened under."""

from __future__ import annotations

import signal

import pytest

from tests.endings.ward import as_text

STEPS = (
    "import ctypes, mmap, os, signal, tempfile\nimport holter\n\nfor _ in range(5):\n    holter.step(loss=1.0)\n\n\n"
)
CRASHES = {
    "SIGSEGV": "def forward():\n    ctypes.string_at(0)  # here\n\n\nforward()\n",
    "SIGABRT": "def forward():\n    os.abort()  # here\n\n\nforward()\n",
    "SIGBUS": "file = tempfile.TemporaryFile()\nfile.truncate(8192)\nview = mmap.mmap(file.fileno(), 8192)\n"
    "file.truncate(0)\nprint(view[5000])  # here\n",
}
DOUBLE_FREE = """
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
block = libc.malloc(4000)
libc.free(block)
libc.free(block)  # here
"""


@pytest.mark.parametrize("name", CRASHES)
def test_a_fatal_signal_has_its_line(case, name: str) -> None:
    """The signal, the exit code and the line are told."""
    one = case(STEPS + CRASHES[name]).run()
    ending = one.verdict()["ending"]

    assert (ending["kind"], ending["signal"], one.code) == ("crashed", name, 128 + getattr(signal, name)), as_text(one)
    assert (one.first()["cause"], one.first()["grade"]) == ("native-crash", "established")
    assert one.first()["culprit"]["line"] == one.line("# here")


def test_the_c_librarys_last_words_are_told(case) -> None:
    """glibc says what it found before it aborts; that belongs into the verdict."""
    one = case(STEPS + DOUBLE_FREE).run()

    assert one.kind() == "crashed", as_text(one)
    assert one.first()["culprit"]["line"] == one.line("# here")
    assert "double free" in one.first()["claim"] or "invalid" in one.first()["claim"]
