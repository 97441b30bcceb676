"""The command line is a promise: its options, its exit codes, what it leaves behind, and what it never keeps."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

import holter as holter_package
from holter.commands import cli
from tests.conftest import HOLTER, Holter

# command -> its options and arguments. A change here is a change for everyone who has written a script around it.
FROZEN = {
    "run": {
        "--name",
        "--heal",
        "--on-hang [report|stop|restart]",
        "--resume-args",
        "--notify",
        "--export",
        "--quiet -q",
        "[COMMAND...]",
    },
    "why": {"[RUN...]", "--job", "--against", "--json"},
    "autopsy": {"[LOG]", "[SCRIPT]", "--json"},
    "ls": {"--all", "--failed", "--since", "--name", "--tag", "--sort [started|duration|peak|name]", "--json"},
    "tag": {"RUN", "TAG...", "--remove"},
    "note": {"RUN", "[TEXT]", "--remove"},
    "rename": {"RUN", "NAME"},
    "rm": {"RUN..."},
    "prune": {"--older-than", "--max-size", "--keep-failed", "--dry-run"},
    "attach": {"PID", "--json"},
    "env": {"--python", "--json"},
    "watch": {"[RUN]"},
    "serve": {"--host", "--port"},
    "report": {"[RUN]", "--output -o", "--format [html|md]"},
    "check": {
        "[PATH...]",
        "--fix",
        "--diff",
        "--format [text|json|sarif|github]",
        "--select",
        "--ignore",
        "--explain",
        "--watch",
        "--no-cache",
    },
    "plan": {"--memory", "--device [cpu|cuda|mps]", "--json", "--apply", "[COMMAND...]"},
    "demo": set[str](),
}


def described(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        name = parameter.metavar or str(parameter.name).upper()
        return name if parameter.required else f"[{name}]"
    choice = f" [{'|'.join(parameter.type.choices)}]" if isinstance(parameter.type, click.Choice) else ""
    return " ".join(parameter.opts) + choice


def test_the_options_of_every_command_are_frozen() -> None:
    """No command, option or argument comes, goes or is renamed by accident."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    found = {name: {described(p) for p in command.params} for name, command in commands.items() if command is not None}

    assert found == FROZEN


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_every_command_explains_itself(holter: Holter, name: str) -> None:
    """--help exits with 0, and says more than the options."""
    done = holter(name, "--help")

    assert done.returncode == 0
    assert len(done.stdout) > 150


def words_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """What was said on stderr; never a stack trace."""
    text = done.stderr.decode()
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run"], 2, "no command is given"),
        (["run", "--"], 2, "no command is given"),
        (["run", "--no-such-option", "--", "true"], 2, "No such option"),
        (["run", "--on-hang", "pray", "--", "true"], 2, "report"),
        (["run", "--heal=pray", "--", "true"], 2, "does not take a value"),
        (["run", "--on-hang", "restart", "--", "true"], 2, "does nothing without --heal"),
        (["run", "--resume-args", "--resume", "--", "true"], 2, "does nothing without --heal"),
        (["run", "--heal", "--resume-args", "'", "--", "true"], 2, "is not valid"),
        (["run", "--export", "paper", "--", "true"], 2, "mlflow, otel, tensorboard, wandb"),
        (["plan"], 2, "no command is given"),
        (["plan", "--memory", "much", "--", "true"], 2, "is not an amount of memory"),
        (["plan", "--", "true"], 7, "no training step"),
        (["no-such-command"], 2, "No such command"),
        (["why", "a", "b"], 3, "holter ls"),
        (["why", "--job", "a"], 3, "there is no job"),
        (["why", "a", "b", "--against", "c"], 2, "name one RUN"),
        (["report", "--format", "pdf"], 2, "html"),
        (["report", "r-0042"], 3, "holter ls"),
        (["serve", "--port", "99999"], 2, "65535"),
        (["serve", "--host", "203.0.113.1", "--port", "0"], 1, "can't be listened on"),
        (["ls", "--since", "yesterday"], 2, "30d, 12h or 2026-11-30"),
        (["rm"], 2, "RUN"),
        (["rm", "r-0042"], 3, "holter ls"),
        (["prune"], 2, "--older-than 30d"),
        (["prune", "--max-size", "much"], 2, "2GB or 500MB"),
        (["attach"], 2, "PID"),
        (["attach", "me"], 2, "integer"),
        (["run", "--", "no-such-program-here"], 127, "command not found"),
        (["run", "--", "./missing.py"], 127, "command not found"),
        (["run", "--", "/"], 126, "can't be executed"),
        (["why", "r-0042"], 3, "holter ls"),
        (["why", "no-such-name"], 3, "holter ls"),
        (["why", "--against", "r-0042"], 3, "holter run"),
        (["why"], 3, "holter run"),
        (["attach", "999999999"], 5, "there is no process"),
        (["attach", "0"], 5, "is not a process id"),
        (["attach", "--", "-1"], 5, "is not a process id"),
        (["attach", str(2**70)], 5, "there is no process"),
        (["check"], 2, "no path is given"),
        (["check", "no/such/file.py"], 2, "there is no no/such/file.py"),
        (["check", "--select", "HLT9", "."], 2, "no rule is called 'HLT9'"),
        (["check", "--explain", "HLT9"], 2, "no rule is called 'HLT9'"),
        (["check", "--watch", "-"], 2, "--watch only looks"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_users_mistake_gets_one_clear_message_and_its_own_code(
    holter: Holter, arguments: list[str], code: int, says: str
) -> None:
    """Fact, remedy, exit code; nothing on stdout."""
    done = holter(*arguments)

    assert says in words_of(done)
    assert (done.returncode, done.stdout) == (code, b"")


def test_a_command_that_could_not_start_leaves_no_run(holter: Holter) -> None:
    """Neither a record nor a folder for agents."""
    holter.run("no-such-program-here")

    assert holter("why").returncode == 3


def test_a_file_that_is_not_executable_says_how_to_run_it(holter: Holter) -> None:
    """Exit code 126, as a shell gives it, and the line that would work."""
    script = holter.script("print(1)")

    done = holter.run(script)

    assert done.returncode == 126
    assert f"holter run -- python {script}" in words_of(done)


def test_a_pid_that_is_gone_is_told_as_such(holter: Holter) -> None:
    """A process that ended a moment ago, and one that its parent has not looked at yet."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        found = [holter("attach", str(process.pid)) for process in (gone, zombie)]
    finally:
        zombie.wait()

    assert [done.returncode for done in found] == [5, 5]
    assert "zombie" in words_of(found[1])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter."""
    path = Path("/tmp") / f"holter-test-{os.getpid()}"
    path.mkdir(mode=0o755)
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.root
def test_another_users_process_is_not_ours_to_watch(open_folder: Path) -> None:
    """Exit code 6, and how to do it anyway."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    nobody = pwd.getpwnam("nobody")
    where = {str(Path(str(module.__file__)).parents[1]) for module in (holter_package, click, psutil)}
    environ = {"HOLTER_HOME": str(open_folder / "home"), "PYTHONPATH": os.pathsep.join(sorted(where))}
    as_nobody: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "env": environ}
    version = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            subprocess.run([python, "-c", "import holter, click, psutil"], check=True, capture_output=True, **as_nobody)
            break
        except (OSError, subprocess.CalledProcessError):
            continue
    else:
        pytest.skip("other users may not run this interpreter")
    command = [python, "-m", "holter", "attach", str(os.getpid())]
    done = subprocess.run(command, cwd="/", capture_output=True, **as_nobody)

    assert done.returncode == 6, done.stderr
    assert f"sudo holter attach {os.getpid()}" in words_of(done)


def test_a_damaged_or_foreign_record_is_told_as_such(holter: Holter, tmp_path: Path) -> None:
    """Exit code 4 for a record whose facts are cut off, for a folder of someone else's, and for an empty one."""
    holter.run("true")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "record.json").write_text('{"hello": "world"}')
    (tmp_path / "empty").mkdir()
    meta = holter.record() / "record.json"
    meta.write_bytes(meta.read_bytes()[:100])
    found = [holter("why", name) for name in ("r-0001", str(tmp_path / "foreign"), str(tmp_path / "empty"))]

    assert [done.returncode for done in found] == [4, 4, 4]
    assert all(words_of(done).startswith("holter: ") and done.stderr.count(b"\n") == 1 for done in found)
    assert b"unreadable" in holter("ls").stdout


def in_the_way(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "file").write_text("")
    return {"a file": str(tmp_path / "file"), "below a file": str(tmp_path / "file" / "x"), "proc": "/proc/x"}


@pytest.mark.parametrize("what", ["a file", "below a file", "proc"])
def test_a_home_that_cannot_be_written_costs_the_record_and_not_the_run(
    holter: Holter, tmp_path: Path, what: str
) -> None:
    """The command runs, its exit code is its own, and one line says where the record is now."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {"HOLTER_HOME": in_the_way(tmp_path)[what], "TMPDIR": str(temporary)}
    done = holter.run(sys.executable, "-c", "print('trained'); raise SystemExit(7)", env=environ)
    lines = [line for line in words_of(done).splitlines() if "can't be written" in line]

    assert (done.returncode, done.stdout) == (7, b"trained\n")
    assert len(lines) == 1
    assert list(temporary.glob("holter-records-*/runs/r-0001/record.json"))


@pytest.fixture
def full_home(tmp_path: Path) -> Iterator[Path]:
    """A home on a disk with no room at all."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    home = tmp_path / "full"
    home.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(home)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.strip()}")
    yield home
    subprocess.run(["umount", "--lazy", str(home)], check=True)


@pytest.mark.root
def test_a_full_home_costs_the_record_and_not_the_run(holter: Holter, full_home: Path, tmp_path: Path) -> None:
    """The training runs to its end, and what became of the record is said."""
    environ = {"HOLTER_HOME": str(full_home), "TMPDIR": str(tmp_path)}
    script = holter.script("import time\nfor i in range(20): time.sleep(0.05)\nprint('trained')")
    done = holter.run(sys.executable, script, env=environ)

    assert (done.returncode, done.stdout) == (0, b"trained\n")
    assert "No space left on device" in words_of(done)
    assert holter("ls", env=environ).returncode == 0


MARKER = "marker-7f3a-of-the-environment"


def test_no_value_of_the_environment_reaches_the_record(holter: Holter) -> None:
    """Only a named list does: the others are in no file of the record, whatever they are called."""
    script = holter.script(
        """
        import subprocess, sys, time
        import holter
        for i in holter.track(range(30)):
            time.sleep(0.05)
        subprocess.run([sys.executable, "-c", "import time; time.sleep(1.2)"])
        raise ValueError("the end")
        """
    )
    environ = {"MY_SETTING": MARKER, "HF_TOKEN": MARKER, "WANDB_API_KEY": MARKER, "OMP_NUM_THREADS": "3"}
    holter.run(sys.executable, script, "--api-key", MARKER, f"--token={MARKER}", env=environ)
    files = [path for path in holter.home.rglob("*") if path.is_file()]
    # The script's own output is kept as it came: it printed nothing of the kind.
    holding = [str(path) for path in files if MARKER.encode() in path.read_bytes()]

    assert holding == []
    assert any(b'"OMP_NUM_THREADS": "3"' in path.read_bytes() for path in files)


def test_a_record_is_private_to_its_user(holter: Holter) -> None:
    """Folders 0700 and files 0600, also where the umask would allow more."""
    script = holter.script("import os, holter\nholter.step(loss=1.0)\nos.abort()")
    holter.run(sys.executable, script, umask=0)
    modes: dict[str, Any] = {
        str(path.relative_to(holter.home)): oct(path.stat().st_mode & 0o777) for path in holter.home.rglob("*")
    }
    folders = {mode for name, mode in modes.items() if (holter.home / name).is_dir()}
    files = {name: mode for name, mode in modes.items() if (holter.home / name).is_file()}

    assert oct(holter.home.stat().st_mode & 0o777) == "0o700"
    assert folders == {"0o700"}
    assert set(files.values()) == {"0o600"}, files
    assert {Path(name).suffix for name in files} >= {".json", ".jsonl", ".tail", ".txt"}


def test_a_healthy_run_gets_one_line_and_quiet_none(holter: Holter) -> None:
    """On stderr, with the way to more; stdout is the command's alone."""
    loud = holter.run("echo", "hello")
    quiet = holter("run", "--quiet", "--", "echo", "hello")
    quiet_and_sick = holter("run", "-q", "--", "sh", "-c", "kill -9 $$")

    assert loud.stdout == quiet.stdout == b"hello\n"
    assert re.fullmatch(r"✓ echo hello completed in .*r-0001\)\n", words_of(loud))
    assert (quiet.stderr, quiet_and_sick.stderr, quiet_and_sick.returncode) == (b"", b"", 137)


def test_a_sick_run_gets_its_verdict_on_stderr(holter: Holter) -> None:
    """Several lines, none of them on stdout, and the exit code is the command's."""
    done = holter.run(sys.executable, "-c", "raise ValueError('odd')")

    assert (done.returncode, done.stdout) == (1, b"")
    assert "ValueError" in words_of_verdict(done)


def words_of_verdict(done: subprocess.CompletedProcess[bytes]) -> str:
    """What Holter said after the command's own traceback."""
    return done.stderr.decode().split("ValueError: odd\n", 1)[1]


def test_the_version_is_told() -> None:
    """And `python -m holter` is the same program."""
    done = subprocess.run([*HOLTER, "--version"], capture_output=True, text=True)

    assert re.fullmatch(r"holter, version \d+\.\d+\.\d+\n", done.stdout)
    assert done.returncode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user without a home")
def test_a_user_without_a_home_records_in_the_temporary_folder() -> None:
    """In a container the user may be a bare number: there is no home to be found, and that is no error."""
    code = "import os; from holter.record import place; os.setuid(54321); print(place.home())"

    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == f"{tempfile.gettempdir()}/holter-home-54321", done.stderr


def test_a_parent_that_ignores_the_ends_of_children_changes_nothing(holter: Holter) -> None:
    """Started with SIGCHLD ignored, as some daemons do, the exit code still comes back."""
    quiet = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # noqa: E731

    done = holter.run("/bin/sh", "-c", "exit 6", preexec_fn=quiet)

    assert done.returncode == 6, done.stderr.decode()
