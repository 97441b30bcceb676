"""The agent comes into every Python from 3.9 on, and leaves older ones alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holter.record import lines
from holter.record.ring_reader import RingView
from tests.agent.agent_run import INJECT

SCRIPT = """
from __future__ import print_function
import sys, time
print("hello")
if sys.version_info >= (3, 9):
    import holter
    for i in holter.track(range(50)):
        time.sleep(0.001)
        holter.step(loss=1.0 / (i + 1))
"""


def interpreter(version: str) -> str:
    """Where this version is at hand, as itself and not as a shim that picks another."""
    home = Path.home() / ".pyenv" / "versions"
    wanted = [*sorted(home.glob(f"{version}.*/bin/python{version}")), *sorted(home.glob(f"{version}.*/bin/python"))]
    found = shutil.which(f"python{version}")
    if found and "shims" not in found:
        wanted.append(Path(found))
    for path in wanted:
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([str(path), "-c", asked], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return str(path)
    pytest.skip(f"there is no Python {version} here")


def run(python: str, folder: Path, agent: bool = True) -> subprocess.CompletedProcess[bytes]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    (folder / "guests").mkdir(exist_ok=True)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HOLTER", "PYTHON"))}
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if agent:
        environ |= {"HOLTER_AGENT_DIR": str(folder / "guests"), "PYTHONPATH": str(INJECT)}
    return subprocess.run([python, str(script)], env=environ, cwd=folder, capture_output=True, timeout=600)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_steps_are_counted_in_every_python(version: str, tmp_path: Path) -> None:
    """With no Holter installed in it: the agent travels by path, and `import holter` finds the small API."""
    done = run(interpreter(version), tmp_path)
    files = {path.suffix: path for path in (tmp_path / "guests").iterdir()}
    view = RingView(files[".ring"].read_bytes())
    events, bad = lines.read_file(files[".jsonl"])

    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")
    assert view.state()["step"] == 50
    assert sum(slot.count for slot in view.slots()) == 50
    assert [(event["k"], event["python"].rpartition(".")[0]) for event in events] == [("guest", version)]
    assert bad == 0


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8"])
def test_an_older_python_runs_unharmed_and_in_silence(version: str, tmp_path: Path) -> None:
    """Not a word more than without us, and nothing is written."""
    python = interpreter(version)
    plain = run(python, tmp_path, agent=False)

    done = run(python, tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    assert done.stdout == b"hello\n"
    assert list((tmp_path / "guests").iterdir()) == []
