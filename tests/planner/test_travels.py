"""The planner runs in the user's own interpreter too: Python 3.9, its own files, no framework until one is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holter

PLANNER = Path(holter.__file__).parent / "planner"


def test_the_planner_calls_nothing_newer_than_python_3_9() -> None:
    """vermin knows when each function and argument of the standard library came."""
    pytest.importorskip("vermin")
    start = "import sys, vermin; sys.exit(vermin.main())"
    words = ["--target=3.9-", "--violations", "--no-tips", "--eval-annotations", str(PLANNER)]
    done = subprocess.run([sys.executable, "-c", start, *words[:3], words[4]], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted(PLANNER.glob("*.py")), ids=lambda path: path.name)
def test_frameworks_are_imported_inside_functions_only(path: Path) -> None:
    """And of ours, nothing but the planner itself: it travels by path."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & {"torch", "keras", "tensorflow", "holter"}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert str(node.module).split(".")[0] not in ("torch", "keras", "tensorflow", "holter")


def test_holter_itself_imports_no_framework() -> None:
    """`import holter` stays light, and `holter.plan` is there."""
    code = "import sys, holter; assert callable(holter.plan); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
