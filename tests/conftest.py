"""What tests share: a private home for records, and `holter` as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HOLTER = [sys.executable, "-m", "holter"]

# Tests start hundreds of processes. Each would compile our modules anew where this is set, for half of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Threads that spin while they wait for each other take the cores from the tests beside them. A test of threads asks for
# its own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Whoever started the tests may ignore these, as a shell does for what it runs in the background; Holter would rightly
# leave them ignored, and the tests of signals would wait for nothing.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Files that take longest, in this order; then the folders that start frameworks, then the rest. A long file that begins
# last would leave the other cores with nothing to do.
LONGEST = [
    "guests/test_suites.py",
    "cures/test_cures.py",
    "endings/test_thrash_named.py",
    "heal/test_resume.py",
    "heal/test_keras.py",
    "heal/test_nan_torch.py",
    "endings/test_forecasts.py",
    "endings/test_recompile_named.py",
    "agent/test_torch_adapter.py",
    "heal/test_collect.py",
    "agent/test_traces.py",
    "endings/test_early_stops.py",
    "agent/test_calm.py",
    "agent/test_patches.py",
    "heal/test_soft_wall.py",
    "endings/test_look_alikes.py",
    "agent/test_retained.py",
    "planner/test_script.py",
]
LONG = ("guests", "cures", "endings", "heal", "agent", "ranks", "score", "planner", "run", "views")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; within a file nothing is moved."""

    def place(item: pytest.Item) -> tuple[int, int]:
        path = item.path.relative_to(Path(__file__).parent)
        name, folder = path.as_posix(), path.parts[0]
        return (
            LONGEST.index(name) if name in LONGEST else len(LONGEST),
            LONG.index(folder) if folder in LONG else len(LONG),
        )

    items.sort(key=place)


class Holter:
    """Starts `holter` with records of its own, and never leaves a process behind."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def environ(self, **extra: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLTER")}
        return {**kept, "HOLTER_HOME": str(self.home), "PYTHONUNBUFFERED": "1", **extra}

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        environ = self.environ(**options.pop("env", {}))
        for stream in ("stdin", "stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        process = subprocess.Popen([*HOLTER, *arguments], env=environ, cwd=self.folder, **options)
        self.started.append(process)
        return process

    def __call__(self, *arguments: str, timeout: float = 900, **options: Any) -> subprocess.CompletedProcess[bytes]:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        return self("run", "--", *words, **options)

    def why(self, run: str | None = None) -> dict[str, Any]:
        """The verdict as JSON."""
        done = self("why", *([run] if run else []), "--json")
        assert done.returncode == 0, done.stderr.decode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def record(self, number: int = 1) -> Path:
        return self.home / "runs" / f"r-{number:04d}"

    def events(self, kind: str, number: int = 1) -> list[dict[str, Any]]:
        lines = []
        for name in ("events.jsonl", "keeper.jsonl"):
            path = self.record(number) / name
            if path.exists():
                lines += [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["k"] == kind]

    def timeline(self, kind: str, number: int = 1) -> list[dict[str, Any]]:
        lines = []
        for path in sorted((self.record(number) / "timeline").glob("*.jsonl")):
            lines += [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["k"] == kind]

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@pytest.fixture
def holter(tmp_path: Path) -> Iterator[Holter]:
    work = tmp_path / "work"
    work.mkdir()
    started = Holter(tmp_path / "home", work)
    yield started
    started.close()


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., Any]:
    """Wait until something is true; fails with its name when it does not become so."""

    def wait(what: Callable[[], Any], name: str, seconds: float = 600.0) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = what()
            if found:
                return found
            time.sleep(0.05)
        pytest.fail(f"{name} did not happen within {seconds} s")

    return wait
