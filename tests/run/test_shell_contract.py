"""Whatever the shell and the machine hand us, the command is started, goes its way, and its exit code comes back."""

from __future__ import annotations

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HOLTER, Holter
from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture


def shell(holter: Holter, line: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """A line of a shell script, with `holter` in it."""
    text = line.replace("HOLTER", " ".join(HOLTER)).replace("PYTHON", sys.executable)
    options = {"cwd": holter.folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(["bash", "-c", text], env=holter.environ(), timeout=600, check=False, **options)


# --- stderr ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", "2>&- >&-", "<&- 2>&-"])
@pytest.mark.parametrize("home", ["writable", "unwritable"])
def test_a_stderr_that_takes_nothing_costs_no_exit_code(holter: Holter, where: str, home: str) -> None:
    """Closed or full, also when there is something to say before the command starts."""
    if home == "unwritable":
        holter.home.write_text("not a folder")
    holter.script("import os; open('ran', 'w').close(); raise SystemExit(7)")
    done = shell(holter, f"HOLTER run -- PYTHON train.py {where}")

    assert (done.returncode, (holter.folder / "ran").exists()) == (7, True)


def test_streams_that_were_closed_stay_closed_for_the_command(holter: Holter) -> None:
    """It sees what it would have seen, and no file of ours takes their numbers."""
    holter.script(
        """
        import os
        found = []
        for fd in (0, 1, 2):
            try:
                os.fstat(fd)
                found.append(fd)
            except OSError:
                pass
        open("open", "w").write(repr(found))
        """
    )
    plain = shell(holter, "PYTHON train.py <&- 2>&-; cat open").stdout
    watched = shell(holter, "HOLTER run -- PYTHON train.py <&- 2>&-; cat open").stdout

    assert (plain, watched) == (b"[1]", b"[1]")
    assert holter.events("end")[0]["exit_code"] == 0


def test_a_full_device_answers_the_command_itself(holter: Holter) -> None:
    """`No space left on device`, and not a broken pipe."""
    holter.script("import os\ntry:\n os.write(2, b'x')\nexcept OSError as error:\n print(error.errno)")
    done = shell(holter, "HOLTER run -- PYTHON train.py 2>/dev/full")

    assert done.stdout == b"28\n"


@pytest.mark.parametrize("command", ["ls", "why", "why --json", "check train.py", "report -o -"])
def test_a_stdout_that_is_full_is_told_in_one_line(holter: Holter, command: str) -> None:
    """The reason and exit code 1, not a stack trace; nor a second failure at the interpreter's end."""
    holter.script("import torch\nprint(1)")
    shell(holter, "HOLTER run -q -- true")
    done = shell(holter, f"HOLTER {command} >/dev/full")

    assert (done.returncode, done.stderr) == (1, b"holter: the output can't be written: No space left on device\n")


def test_a_terminal_that_has_hung_up_costs_no_exit_code(holter: Holter) -> None:
    """Started under nohup, with the window closed before the end."""
    ours, terminal = pty.openpty()
    script = holter.script("import sys, time; sys.stdin.readline(); raise SystemExit(7)")
    process = holter.start("run", "--", sys.executable, script, stderr=terminal, stdout=terminal)
    os.close(terminal)
    os.close(ours)
    process.communicate(b"go on\n", timeout=600)

    assert process.returncode == 7


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize("shm", ["size=64m", "size=1g"])
def test_a_read_only_root_without_a_temporary_folder(holter: Holter, shm: str) -> None:
    """As under `docker run --read-only`: the command runs, with one line about its record."""
    script = holter.script("raise SystemExit(7)")
    line = (
        f"mount -t tmpfs -o {shm} tmpfs /dev/shm && mount --make-rprivate / && "
        "for at in / /tmp /var/tmp; do mountpoint -q $at && { mount -o remount,bind,ro $at || exit 99; }; done; "
        f"HOLTER run -- PYTHON {script}"
    )
    environ = {"PYTHONDONTWRITEBYTECODE": "1"}
    text = line.replace("HOLTER run", " ".join(HOLTER) + " run").replace("PYTHON ", sys.executable + " ")
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", text],
        env=holter.environ(**environ), cwd=holter.folder, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    stderr = done.stderr.decode()

    assert done.returncode == 7, stderr
    assert stderr.count("records can't be written to") == 1
    assert ("not recorded" in stderr, "is recorded in /dev/shm" in stderr) == (shm == "size=64m", shm == "size=1g")
    assert "Traceback" not in stderr


def test_a_working_folder_that_was_removed(holter: Holter) -> None:
    """The command runs there all the same, and its record is whole."""
    script = holter.script("raise SystemExit(7)")
    done = shell(holter, f"mkdir gone; cd gone; rmdir ../gone; HOLTER run -- PYTHON {script}")

    assert done.returncode == 7
    assert holter.why()["ending"]["exit_code"] == 7
    assert b"not recorded" not in done.stderr


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_thousand_inherited_descriptors(holter: Holter) -> None:
    """Numbers above 1,023 are waited for like any other, and not in a spin."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit[1] != resource.RLIM_INFINITY and limit[1] < 4096:
        pytest.skip("fewer than 4,096 files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(4096, limit[0]), limit[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        script = holter.script("import time; time.sleep(4); print('out', flush=True); raise SystemExit(7)")
        done = holter.run(sys.executable, script, pass_fds=held)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)

    assert (done.returncode, done.stdout) == (7, b"out\n")
    (cost,) = holter.events("cost")
    assert cost["cpu_s"] < 0.8 * holter.events("end")[0]["m"] - 0.8 * holter.events("started")[0]["m"]


@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not there: another user can't be become")
@pytest.mark.parametrize("room", [1, 2, 3, 4, 5, 6])
def test_near_the_limit_of_processes_the_command_runs(holter: Holter, room: int) -> None:
    """With room for the command alone, for a keeper, for some of our threads, for all: never a broken pipe."""
    script = holter.script(
        """
        import ctypes
        adopts = ctypes.c_int(7)
        ctypes.CDLL(None).prctl(37, ctypes.byref(adopts), 0, 0, 0)
        for i in range(300):
            print("line", i, adopts.value, flush=True)
        raise SystemExit(7)
        """
    )
    user = 61_000 + room  # processes are counted by the number of the user; root's are not
    become = (
        f"setpriv --reuid {user} --regid {user} --clear-groups --inh-caps +dac_override --ambient-caps +dac_override"
    )
    done = shell(holter, f"ulimit -u {room}; exec {become} HOLTER run -- PYTHON {script}")

    assert done.stdout == b"".join(b"line %d 0\n" % i for i in range(300)), done.stderr.decode()
    assert done.returncode == 7
    assert b"Traceback" not in done.stderr


# --- stop and go on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["holter", "command"])
def test_a_stop_outside_a_terminal_does_not_stop_the_calling_script(
    holter: Holter, wait_for: Callable[..., Any], who: str
) -> None:
    """`kill -TSTP` and `kill -CONT`: the command stops and goes on, and so does the script that waits for it."""
    train = holter.script("import time\nprint('ready', flush=True)\ntime.sleep(1)\nraise SystemExit(7)")
    text = f"{' '.join(HOLTER)} run -- {sys.executable} {train}; echo code=$?"
    process = subprocess.Popen(
        ["bash", "-c", text], env=holter.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        pid = holter.events("spawned")[0]["pid"]
        recorder = json.loads((holter.record() / "record.json").read_text())["recorder_pid"]
        os.kill({"holter": recorder, "command": pid}[who], signal.SIGTSTP)
        wait_for(lambda: state(pid) == state(recorder) == "T", "both stop")
        assert state(process.pid) != "T"

        os.kill({"holter": recorder, "command": pid}[who], signal.SIGCONT)

        assert process.stdout.read() == b"code=7\n"
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        process.wait(600)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


# --- our own death --------------------------------------------------------------------------------------------------

PRINTS = """
import os, time
for i in range(400):
    os.write(1, b"line %d\\n" % i)
    os.write(2, b"also %d\\n" % i)
    time.sleep(0.002)
raise SystemExit(7)
"""


def test_the_keepers_death_costs_neither_a_line_nor_the_exit_code(holter: Holter) -> None:
    """The recorder takes its place: output into a pipe flows on, and the end is known."""
    process = holter.start("run", "-q", "--", sys.executable, holter.script(PRINTS), bufsize=0)
    assert process.stdout is not None
    first = process.stdout.readline()
    os.kill(keeper_of(holter), signal.SIGKILL)
    out, err = process.communicate(timeout=600)

    assert first + out == b"".join(b"line %d\n" % i for i in range(400))
    assert err == b"".join(b"also %d\n" % i for i in range(400))
    assert process.returncode == 7
    assert holter.why()["ending"]["exit_code"] == 7
    assert holter.events("keeper-lost")
    assert b"line 399\n" in (holter.record() / "output.tail").read_bytes()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("kind == 'spawned'", id="before the recorder knows the command"),
        pytest.param("kind == 'exited'", id="when it alone knows of the end"),
        pytest.param("kind == 'drained'", id="when all has been told"),
    ],
)
def test_the_keepers_death_at_its_worst_moments(holter: Holter, moment: str) -> None:
    """The command is started all the same, once, and its exit code comes back."""
    driver = holter.script(
        f"""
        import os, signal
        from holter.commands import main
        from holter.recorder.launch.keeper import Keeper

        emit, recorder = Keeper.emit, os.getpid()

        def emit_or_die(self, kind, /, **fields):
            if {moment} and os.getpid() != recorder and not os.path.exists("killed"):
                open("killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            emit(self, kind, **fields)

        Keeper.emit = emit_or_die
        main()
        """,
        "driver.py",
    )
    script = holter.script("open('began', 'a').write('once'); print('out', flush=True); raise SystemExit(7)")
    words = [sys.executable, driver, "run", "-q", "--", sys.executable, script]
    done = subprocess.run(words, env=holter.environ(), cwd=holter.folder, check=False, capture_output=True, timeout=600)

    assert (done.returncode, done.stdout) == (7, b"out\n"), done.stderr.decode()
    assert (holter.folder / "killed").exists()
    assert (holter.folder / "began").read_text() == "once"
    assert holter.why()["ending"]["exit_code"] == 7


def test_a_reader_that_leaves_is_met_also_after_the_keepers_death(holter: Holter) -> None:
    """The recorder closes its end as the keeper would have."""
    script = holter.script("import os, time\nwhile True:\n    os.write(1, b'y' * 100)\n    time.sleep(0.001)")
    process = holter.start("run", "-q", "--", "sh", "-c", f"{sys.executable} {script}; exit 7")
    assert process.stdout is not None
    process.stdout.read(1)
    os.kill(keeper_of(holter), signal.SIGKILL)
    process.stdout.read(1000)
    process.stdout.close()

    assert process.wait(600) == 7


def test_a_tail_that_is_cut_off_kills_nobody(holter: Holter) -> None:
    """Someone empties `output.tail` while the command prints: it goes on, and what comes later is kept."""
    process = holter.start("run", "-q", "--", sys.executable, holter.script(PRINTS), bufsize=0)
    assert process.stdout is not None
    first = process.stdout.readline()
    (holter.record() / "output.tail").write_bytes(b"")
    out, _err = process.communicate(timeout=600)

    assert first + out == b"".join(b"line %d\n" % i for i in range(400))
    assert process.returncode == 7
    assert not holter.events("keeper-lost")
    from holter.record.tail import read_tail

    assert b"line 399\n" in read_tail(holter.record() / "output.tail")


def keeper_of(holter: Holter) -> int:
    pid = holter.events("spawned")[0]["pid"]
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def test_a_restarted_command_is_not_spared_when_memory_runs_out(
    holter: Holter,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """The recorder has the kernel treat it another way; the command that it starts again does not inherit that.

    To be spared needs a right that containers are not given: here it makes itself the first to go instead.
    """
    driver = holter.script(
        """
        import holter.recorder.loop.recorder as recorder
        from holter.commands import main

        def spare(*pids):
            for pid in pids:
                with open(f"/proc/{pid}/oom_score_adj", "w") as file:
                    file.write("300")

        recorder.spare = spare
        main()
        """,
        "driver.py",
    )
    script = holter.script(
        """
        import time, holter
        with open("scores", "a") as file:
            file.write(open("/proc/self/oom_score_adj").read())
        kept, grown = [], []
        for number in holter.resumable(range(12), every=0.0, kept=kept):
            kept.append(number)
            time.sleep(0.1)
            while number == 8 and open("scores").read().count("\\n") < 2:
                grown.append(bytearray(b"x") * (20 << 20))
                time.sleep(0.05)
        """
    )
    mine = Path("/proc/self/oom_score_adj").read_text()
    words = [sys.executable, driver, "run", "--heal", "--", sys.executable, script]
    subprocess.run(
        words, env=holter.environ(), cwd=holter.folder, check=False, capture_output=True, timeout=600,
        preexec_fn=memory_cgroup(300 << 20),
    )  # fmt: skip

    assert (holter.folder / "scores").read_text() == 2 * mine
