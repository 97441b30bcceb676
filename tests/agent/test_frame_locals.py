"""The variables of a running function are read, and its `locals()` stays what the script made of it."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from holter.agent.core import frame_locals

OLDER = pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons read without that dict")


def seen(*names: str) -> dict[str, Any]:
    return frame_locals.read(sys._getframe(1), *names)


def test_variables_are_read_by_their_names() -> None:
    """All of them, or those that are asked for; one that is not set yet is not there."""

    def train(rate: float) -> list[dict[str, Any]]:  # noqa: ARG001
        losses = [1]
        found = [seen(), seen("losses", "unknown")]
        later = 1
        return [*found, {"later": later, "inside": lambda: losses}]

    first, second, _ = train(0.1)

    assert first == {"rate": 0.1, "losses": [1]}
    assert second == {"losses": [1]}


def test_a_dict_that_the_script_holds_is_left_alone() -> None:
    """`hp = locals()` at the top of a training function keeps what it had, and gets nothing new."""

    def train(rate: float, steps: int) -> tuple[list[str], dict[str, Any]]:
        hp = locals()
        batch = [rate, steps]
        seen()
        seen("batch", "rate")
        return batch and sorted(hp), hp

    names, held = train(0.1, 3)

    assert names == ["rate", "steps"]
    assert held == {"rate": 0.1, "steps": 3}


def test_a_dict_that_is_asked_for_later_is_whole() -> None:
    """Nothing of ours is missing or too much in it."""

    def train(rate: float) -> dict[str, Any]:  # noqa: ARG001
        batch = 2
        frame_locals.read(sys._getframe(), "batch")
        return dict(sys._getframe().f_locals, batch=batch)

    assert train(0.1) == {"rate": 0.1, "batch": 2}


def test_nothing_that_was_read_is_held() -> None:
    """What the function lets go is gone at once."""

    class Thing:
        pass

    def train() -> bool:
        thing = Thing()
        gone = weakref.ref(thing)
        found = seen()["thing"] is thing
        del thing
        return found and gone() is None

    assert train()


@OLDER
def test_a_dict_that_somebody_else_holds_is_not_emptied() -> None:
    """A debugger or a logger may have taken it from the frame."""
    taken: list[dict[str, Any]] = []

    def logger() -> None:
        taken.append(sys._getframe(1).f_locals)

    def train(rate: float) -> dict[str, Any]:
        logger()
        return seen() or {"declined": rate}

    assert train(0.1) == {"declined": 0.1}
    assert taken[0]["rate"] == 0.1


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_other_pythons_leave_the_dict_alone_too(version: str, tmp_path: Path) -> None:
    """Each has its own way to the variables."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} here")
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('read', {str(frame_locals.__file__)!r})\n"
        "read = importlib.util.module_from_spec(spec); spec.loader.exec_module(read)\n"
        "def look(): return read.read(sys._getframe(1))\n"
        "def train(rate):\n    hp = locals()\n    x = 1\n    look()\n    return sorted(hp)\n"
        "def other(rate):\n    x = [1]\n    return sorted(look())\n"
        "print(train(1), other(1))\n"
    )
    done = subprocess.run([str(found[-1]), str(script)], capture_output=True, text=True, timeout=600)

    assert done.stdout == "['rate'] ['rate', 'x']\n", done.stderr
