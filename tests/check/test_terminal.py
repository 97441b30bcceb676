"""What a person at a terminal gets: colour, the page of a rule, and checks that follow each change."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from holter.check.page import parts
from holter.check.rule import HEADINGS, Rule, find_rules

SICK = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
WELL = "import torch\nscaler = torch.amp.GradScaler('cuda')\n"
COMMAND = [sys.executable, "-m", "holter", "check"]
PATIENCE_S = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    (tmp_path / "sick.py").write_text(SICK)
    return tmp_path


def on_terminal(*arguments: str, cwd: Path) -> str:
    leader, follower = pty.openpty()
    running = subprocess.Popen([*COMMAND, *arguments], cwd=cwd, stdout=follower, stderr=subprocess.DEVNULL)
    os.close(follower)
    shown = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    running.wait()
    return shown.decode()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # Linux says so when nobody has the other end
        return b""


def on_pipe(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_place_code_and_marker_have_colour_on_a_terminal(folder: Path) -> None:
    """And nothing else: without the codes it is the text of a pipe."""
    shown = on_terminal("sick.py", cwd=folder)

    assert "\x1b[1msick.py:2:10\x1b[0m: \x1b[33mHLT303\x1b[0m deprecated-amp" in shown
    assert "\x1b[2m        2 |\x1b[0m scaler" in shown
    assert shown.count("\x1b[0m") == 3
    for code in ("\x1b[1m", "\x1b[33m", "\x1b[2m", "\x1b[0m", "\r"):
        shown = shown.replace(code, "")
    assert shown == on_pipe("sick.py", cwd=folder).stdout


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colour_gets_none(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """NO_COLOR, or a terminal that can't."""
    monkeypatch.setenv(name, value)

    assert "\x1b" not in on_terminal("sick.py", cwd=folder)


def test_a_pipe_gets_colour_only_by_force(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR is for logs that show it; NO_COLOR is stronger, and what programs read has none ever."""
    assert "\x1b" not in on_pipe("sick.py", cwd=folder).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[33mHLT303" in on_pipe("sick.py", cwd=folder).stdout
    assert "\x1b" not in on_pipe("sick.py", "--format", "json", cwd=folder).stdout
    assert "\x1b" not in on_terminal("sick.py", "--format", "github", cwd=folder)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_pipe("sick.py", cwd=folder).stdout


def test_a_script_cannot_move_the_cursor(folder: Path) -> None:
    """What it holds is shown with its control characters replaced, in colour or not."""
    (folder / "sick.py").write_text(SICK.rstrip() + "  # \x1b]0;title\x07 \x1b[2J\n")

    assert "\x1b]0" not in on_terminal("sick.py", cwd=folder)
    assert "\x1b[2J" not in on_terminal("sick.py", cwd=folder)


@pytest.mark.parametrize("rule", find_rules(), ids=lambda rule: rule.name)
def test_a_rules_page_has_all_that_the_documentation_has(rule: Rule) -> None:
    """A title, and something under every heading."""
    told = parts(rule)

    assert list(told) == ["", *HEADINGS]
    assert all(told.values())


@pytest.mark.parametrize("name", ["HLT103", "hlt103", "graph-kept"])
def test_explain_prints_the_page_of_a_rule(folder: Path, name: str) -> None:
    """By its code or its name; what the page shows as code keeps its lines."""
    done = on_pipe("--explain", name, cwd=folder)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("HLT103 graph-kept\nA loss or an output is kept")
    assert [line for line in done.stdout.splitlines() if line in HEADINGS] == list(HEADINGS)
    assert "\nExample\n    loss.backward()\n    total += loss\n" in done.stdout


@pytest.mark.parametrize("name", ["HLT1", "HLT999", "graph", ""])
def test_explain_of_no_rule_is_a_usage_error(folder: Path, name: str) -> None:
    """The beginning of a code is many rules: no page is guessed."""
    done = on_pipe("--explain", name, cwd=folder)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"no rule is called {name!r}" in done.stderr


class Watching:
    """A `holter check --watch` and what it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.fd = fd
        self.said = ""

    def until(self, reached: Callable[[str], bool]) -> str:
        """Wait for what it says next, give that, and forget it."""
        end = time.monotonic() + PATIENCE_S
        while not reached(self.said):
            assert time.monotonic() < end, self.said
            if select.select([self.fd], [], [], 0.1)[0]:
                self.said += _read(self.fd).decode()
        said, self.said = self.said, ""
        return said

    def checked(self) -> str:
        return self.until(lambda said: "waits for the next change" in said)


@contextmanager
def watching(folder: Path, *arguments: str, terminal: bool = False) -> Iterator[Watching]:
    reader, writer = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "--watch", *arguments], cwd=folder, stdout=writer, stderr=writer, start_new_session=True
    )
    os.close(writer)
    try:
        yield Watching(process, reader)
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def test_watch_checks_again_when_a_file_changes_comes_or_goes(folder: Path) -> None:
    """Once for each change, and not for a file that is no script; a pipe's screen is not cleared."""
    with watching(folder, ".") as watch:
        first = watch.checked()
        (folder / "notes.txt").write_text("")
        (folder / "sick.py").write_text(WELL)
        changed = watch.checked()
        (folder / "new.py").write_text(SICK)
        came = watch.checked()
        (folder / "new.py").unlink()
        went = watch.checked()

    assert "1 finding in 1 of 1 file" in first
    assert "nothing found in 1 file" in changed
    assert "new.py:2:10: HLT303" in came
    assert "nothing found in 1 file" in went
    assert "\x1b" not in first + changed + came + went


def test_watch_says_nothing_while_nothing_changes(folder: Path) -> None:
    """A file that is read, or one beside those that are checked, is no change."""
    with watching(folder, "sick.py") as watch:
        watch.checked()
        (folder / "other.py").write_text(SICK)
        (folder / "sick.py").read_text()
        time.sleep(2)
        os.utime(folder / "sick.py")

        assert watch.checked().count("finding in") == 1


def test_watch_survives_settings_that_are_being_written(folder: Path) -> None:
    """What is wrong is told, and once it is mended the check goes on with it."""
    (folder / "pyproject.toml").write_text("[tool.holter.check]\nignore = []\n")
    with watching(folder, ".") as watch:
        watch.checked()
        (folder / "pyproject.toml").write_text("[tool.holter.check]\nignore = [\n")
        broken = watch.checked()
        (folder / "pyproject.toml").write_text('[tool.holter.check]\nignore = ["HLT303"]\n')
        mended = watch.checked()

    assert "is not TOML" in broken
    assert "nothing found in 1 file" in mended


def test_watch_clears_a_terminal_and_ends_with_ctrl_c(folder: Path) -> None:
    """With exit code 0, since there is no other way to end it, and without a stack trace."""
    with watching(folder, ".", terminal=True) as watch:
        first = watch.checked()
        watch.process.send_signal(signal.SIGINT)
        code = watch.process.wait(PATIENCE_S)
        rest = _read(watch.fd).decode()

    assert first.startswith("\x1b[2J\x1b[H\x1b[1msick.py")
    assert (code, rest.strip()) == (0, "")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no workers")
def test_ctrl_c_in_the_middle_of_many_files_leaves_no_stack_trace(folder: Path) -> None:
    """To the whole group, workers too, as a terminal sends it."""
    body = "import torch\n" + "x = torch.matmul(a, b)\n" * 3000
    for number in range(400):
        (folder / f"f{number}.py").write_text(body)
    with watching(folder, ".") as watch:
        while len(psutil.Process(watch.process.pid).children()) < 2:
            time.sleep(0.05)
        os.killpg(watch.process.pid, signal.SIGINT)
        code = watch.process.wait(PATIENCE_S)
        said = b"".join(iter(lambda: _read(watch.fd), b"")).decode()

    assert code == 0
    assert "Traceback" not in said


@pytest.mark.parametrize("option", ["--fix", "--diff"])
def test_watch_changes_nothing(folder: Path, option: str) -> None:
    """It would mend a script while it is being written."""
    done = on_pipe("--watch", option, "sick.py", cwd=folder)

    assert (done.returncode, done.stdout) == (2, "")
    assert "Leave out --fix" in done.stderr
