"""What a log proves is established, what it only suggests is a hypothesis, and a healthy one gets no finding at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from holter.autopsy.examine import autopsy
from holter.autopsy.kernel_words import KernelWords, kernel_words
from holter.probes.kernel_log_linux import parse_text
from tests.conftest import Holter
from tests.score.control_group import control_group
from tests.score.errors import CannotBeMade
from tests.score.patient import Patient

NOTHING_KEPT = KernelWords(because="it was not kept")
SILENT = KernelWords(since=0.0)

# As the kernel writes it; the numbers are those of a real kill.
KILLED = (
    "Memory cgroup out of memory: Killed process 14178 (python) total-vm:3529732kB, anon-rss:1428900kB, "
    "file-rss:80192kB, shmem-rss:0kB, UID:0 pgtables:4044kB oom_score_adj:0"
)
EPOCHS = "".join(f"epoch {n}/40 loss {2 / n:.4f}\n" for n in range(1, 18))


def examine(
    folder: Path, log: str, script: str | None = None, kernel: KernelWords = SILENT, name: str = "train.log"
) -> dict[str, Any]:
    """The autopsy of a log, and of a script, that are written here."""
    if script is not None:
        (folder / "train.py").write_text(textwrap.dedent(script))
    (folder / name).write_text(log)
    return autopsy(str(folder / name), str(folder / "train.py") if script is not None else None, kernel).as_json()


def kill_at(log: Path, after: float = 1.0, text: str = KILLED) -> KernelWords:
    """The kernel's log with a kill so many seconds after the last word of a log."""
    line = parse_text(text)
    assert line is not None
    at = log.stat().st_mtime + after
    return KernelWords(({**line, "at": at, "t": at},), since=0.0)


def graded(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["cause"], one["grade"]) for one in found["findings"]]


def ran(folder: Path, script: str) -> str:
    """The output of a real script."""
    (folder / "real.py").write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, "real.py"], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_traceback_is_the_exception_that_it_says(tmp_path: Path) -> None:
    """Established, with the user's own line, and nothing is left to settle."""
    log = ran(tmp_path, "print('epoch 1/3 loss 0.5')\nlabels = {}\nlabels['cat']\n")
    found = examine(tmp_path, log)

    first = found["findings"][0]
    assert found["ending"]["kind"] == "exception"
    assert (first["cause"], first["grade"], first["settle"]) == ("user-error", "established", "")
    assert (Path(first["culprit"]["file"]).name, first["culprit"]["line"]) == ("real.py", 3)


def test_a_traceback_that_the_run_outlived_is_not_its_end(tmp_path: Path) -> None:
    """It was printed and caught; what came afterwards is what counts."""
    caught = ran(tmp_path, "import traceback\ntry:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\n")

    assert examine(tmp_path, caught + EPOCHS + "training complete\n")["findings"] == []


@pytest.mark.parametrize("last", ["Training complete.", "epoch 40/40 loss 0.01", "saved model.pt", "done"])
def test_a_healthy_log_gets_no_finding(tmp_path: Path, last: str) -> None:
    """Also where the kernel killed another Python in that minute."""
    (tmp_path / "train.log").write_text(EPOCHS + last + "\n")

    found = examine(tmp_path, EPOCHS + last + "\n", kernel=kill_at(tmp_path / "train.log"))

    assert (found["ending"]["kind"], found["findings"]) == ("completed", [])


def test_a_kill_whose_process_the_log_names_is_established(tmp_path: Path) -> None:
    """As TensorFlow, torchrun and shells name it; what led to it stays a hypothesis."""
    log = tmp_path / "train.log"
    log.write_text("")
    named = "I0000 00:00:1795131119.555996   14178 port.cc:153] oneDNN custom operations are on.\n" + EPOCHS
    found = examine(tmp_path, named, kernel=kill_at(log))

    assert found["ending"]["kind"] == "oom-killed"
    assert graded(found) == [("out-of-memory", "established"), ("leak", "hypothesis")]
    assert "14178" in found["findings"][0]["claim"]
    assert all(one["against"] for one in found["findings"][1:])


def test_a_kill_of_the_same_minute_alone_is_a_hypothesis(tmp_path: Path) -> None:
    """It may have been anyone's; the log does not say how it ended."""
    (tmp_path / "train.log").write_text("")
    found = examine(tmp_path, EPOCHS, kernel=kill_at(tmp_path / "train.log"))

    assert found["ending"]["kind"] == "unknown"
    assert graded(found)[0] == ("out-of-memory", "hypothesis")
    assert {grade for _, grade in graded(found)} == {"hypothesis"}


def test_a_kill_of_another_hour_or_another_program_is_no_clue(tmp_path: Path) -> None:
    """The kernel's log holds many."""
    (tmp_path / "train.log").write_text("")
    for kernel in (
        kill_at(tmp_path / "train.log", 3000),
        kill_at(tmp_path / "train.log", 1, KILLED.replace("python", "mysqld")),
    ):
        causes = [cause for cause, _ in graded(examine(tmp_path, EPOCHS, kernel=kernel))]

        assert "out-of-memory" not in causes


def test_a_crash_of_that_moment_is_a_hypothesis(tmp_path: Path) -> None:
    """The kernel names a Python that crashed when the log broke off; a crash of another hour is no clue."""
    log = tmp_path / "train.log"
    log.write_text("")
    crash = "python[26475]: segfault at 74237100 ip 00007ff56e98bb75 sp 00007ffc84660bf8 error 6 in libc.so.6[16db75]"

    assert graded(examine(tmp_path, EPOCHS, kernel=kill_at(log, 1, crash)))[0] == ("native-crash", "hypothesis")
    later = examine(tmp_path, EPOCHS, kernel=kill_at(log, 3000, crash))
    assert "native-crash" not in [cause for cause, _ in graded(later)]


def test_slurm_names_its_job_in_both(tmp_path: Path) -> None:
    """The number of the job is in the name of the log, and in the control group that the kernel tells."""
    chosen = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/slurm/uid_7/job_48213,"
        "task_memcg=/slurm/uid_7/job_48213/step_0,task=python,pid=99,uid=7"
    )
    (tmp_path / "slurm-48213.out").write_text("")
    kernel = kill_at(tmp_path / "slurm-48213.out", 1, chosen)

    assert graded(examine(tmp_path, EPOCHS, kernel=kernel, name="slurm-48213.out"))[0][1] == "established"
    (tmp_path / "slurm-482.out").write_text("")
    assert graded(examine(tmp_path, EPOCHS, kernel=kernel, name="slurm-482.out"))[0][1] == "hypothesis"


def test_a_real_kill_is_found_in_the_kernels_own_log(tmp_path: Path) -> None:
    """The kernel kills a process in a small control group, and its log says so to whoever may read it."""
    try:
        with control_group(Patient("autopsy", Path("x"), None, "", "plain", "oom-killed", memory_mb=64), None) as group:
            log = tmp_path / "train.log"
            eats = "import os; print('pid:', os.getpid(), flush=True); held = [bytearray(1 << 20) for _ in range(2000)]"
            with log.open("wb") as out:
                words = ["sh", "-c", f'{group.join_words()}; exec "$0" -c "$1"', sys.executable, eats]
                done = subprocess.run(words, stdout=out, stderr=out, check=False)
    except (CannotBeMade, OSError) as why:
        pytest.skip(str(why))
    assert done.returncode == -signal.SIGKILL
    if not kernel_words(time.time()).readable:
        pytest.skip("the kernel's log can't be read here")
    found = autopsy(str(log)).as_json()

    assert found["ending"]["kind"] == "oom-killed"
    assert graded(found)[0] == ("out-of-memory", "established")


def test_memory_that_an_exception_names_is_a_fact_and_its_cause_is_not(tmp_path: Path) -> None:
    """The line is that of the exception; whether it grew or was too large nobody measured."""
    log = ran(tmp_path, "print('start')\nx = bytearray(1 << 60)\n")
    found = examine(tmp_path, log)

    assert graded(found)[0] == ("out-of-memory", "established")
    assert found["findings"][0]["culprit"]["line"] == 2
    assert {grade for _, grade in graded(found)[1:]} == {"hypothesis"}


def test_a_full_disk_is_not_taken_for_memory(tmp_path: Path) -> None:
    """TensorFlow raises one error for both."""
    log = (
        'Traceback (most recent call last):\n  File "/home/x/train.py", line 8, in <module>\n    model.fit(data)\n'
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\n"
        "/data/cache_0.data; No space left on device\n\t [[{{node IteratorGetNext}}]]\n"
    )

    assert graded(examine(tmp_path, log))[0] == ("disk-full", "established")


def test_a_loss_that_became_nan_is_a_fact(tmp_path: Path) -> None:
    """With the value before it; one that came back to a number was looked after, and is nobody's end."""
    gone = "epoch 1 loss 4000.5\nepoch 2 loss 91234.0\nepoch 3 loss nan\nepoch 4 loss nan\ndone\n"
    back = "step 1 loss nan\n" + EPOCHS + "training complete\n"

    assert graded(examine(tmp_path, gone))[0] == ("nan.unexplained", "established")
    assert "91234.0" in examine(tmp_path, gone)["findings"][0]["claim"]
    assert examine(tmp_path, back)["findings"] == []


def test_a_metric_that_is_nan_is_no_loss(tmp_path: Path) -> None:
    """An area under a curve without positives is undefined, and the training goes on."""
    assert examine(tmp_path, EPOCHS + "val_auc: nan nan_rows=3\ntraining complete\n")["findings"] == []


def test_the_script_gives_a_line_to_a_guess(tmp_path: Path) -> None:
    """What `holter check` finds is held against how it ended: a leak for a kill, never above a hypothesis."""
    script = """
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        history = []
        for step in range(100000):
            loss = model(torch.rand(8, 4)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss)
    """
    (tmp_path / "train.log").write_text("")
    log = "".join(f"step {n} loss 0.5\n" for n in range(200))
    found = examine(tmp_path, log, script, kill_at(tmp_path / "train.log"))
    leak = next(one for one in found["findings"] if one["cause"] == "leak.graph-retained")

    assert (leak["grade"], leak["culprit"]["code"]) == ("hypothesis", "history.append(loss)")
    assert leak["settle"].startswith("holter run -- python ")


def test_a_script_that_changed_since_says_so(tmp_path: Path) -> None:
    """Its lines may not be those that ran."""
    log = ran(tmp_path, "labels = {}\nlabels['cat']\n")
    (tmp_path / "train.log").write_text(log)
    os.utime(tmp_path / "train.log", (1e9, 1e9))
    found = autopsy(str(tmp_path / "train.log"), str(tmp_path / "real.py"), SILENT).as_json()

    assert any("changed after" in text for text in found["findings"][0]["against"])


def test_a_log_that_breaks_off_is_only_guessed_at(tmp_path: Path) -> None:
    """A queue that waits is named before a stranger's signal; with nothing to go by, what is not known is said."""
    waits = "import queue\nresults = queue.Queue()\nfor step in range(9):\n    results.get()\n"
    with_script = examine(tmp_path, EPOCHS, waits)
    alone = examine(tmp_path, EPOCHS, kernel=NOTHING_KEPT)

    assert graded(with_script)[0] == ("hang", "hypothesis")
    assert with_script["findings"][0]["settle"].startswith("holter run --on-hang stop -- ")
    assert {grade for _, grade in graded(alone)} == {"hypothesis"}
    assert any("it was not kept" in text for text in alone["unseen"])


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("child.stdin.flush()", True),
        ("sys.stdout.flush()", False),
        ("results.get()", True),
        ("settings.get('rate')", False),
        ("results.get(timeout=5)", False),
        ("','.join(names)", False),
        ("with guard: pass", True),
        ("with clock: pass", False),
    ],
)
def test_what_can_wait_for_ever_is_known_by_what_it_calls(tmp_path: Path, line: str, waits: bool) -> None:
    """Not by its name: a lock is what was made as one."""
    head = "import sys, threading\nguard = threading.Lock()\nclock = open('x')\nfor step in range(9):\n    "
    causes = [cause for cause, _ in graded(examine(tmp_path, EPOCHS, head + line + "\n"))]

    assert ("hang" in causes) == waits


def test_a_thread_that_died_did_not_end_the_run(tmp_path: Path) -> None:
    """Its traceback is the last of the log: what waited for it is a guess, and no error of the program."""
    log = ran(tmp_path, "import threading\nt = threading.Thread(target=lambda: {}['x'])\nt.start()\nt.join()\n")
    found = examine(tmp_path, log)

    assert found["ending"]["kind"] == "unknown"
    assert graded(found)[0] == ("hang", "hypothesis")
    assert "KeyError" in found["findings"][0]["claim"]


def test_a_file_that_broke_off_is_perhaps_a_full_disk(tmp_path: Path) -> None:
    """The error by itself names no reason: neither is established."""
    log = ran(tmp_path, "raise RuntimeError('basic_ios::clear: iostream error')\n")

    assert graded(examine(tmp_path, log)) == [("disk-full", "hypothesis"), ("user-error", "hypothesis")]


def test_a_value_without_a_name_is_the_loss_of_its_line(tmp_path: Path) -> None:
    """As people print it; a number that is only the number of a batch is none."""
    gone = "".join(f"epoch {n} batch 50: {'nan' if n > 3 else 0.5}\n" for n in range(9))

    assert graded(examine(tmp_path, gone))[0] == ("nan.unexplained", "established")


def test_a_lost_worker_is_not_the_users_error(tmp_path: Path) -> None:
    """The exception is the trainer's; who killed the worker is not in it."""
    log = (
        'Traceback (most recent call last):\n  File "/home/x/train.py", line 30, in <module>\n    for x in loader:\n'
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. \n"
    )
    (tmp_path / "train.log").write_text("")
    killed = kill_at(tmp_path / "train.log", -2, KILLED.replace("14178", "4711"))

    assert graded(examine(tmp_path, log))[0] == ("out-of-memory", "hypothesis")
    assert graded(examine(tmp_path, log, kernel=killed))[0] == ("out-of-memory", "established")
    assert "user-error" not in [cause for cause, _ in graded(examine(tmp_path, log))]


def test_a_scheduler_says_itself_that_time_was_up(tmp_path: Path) -> None:
    """Its own words are proof."""
    words = "slurmstepd: error: *** JOB 48213 ON n1 CANCELLED AT 2026-11-19T10:00:00 DUE TO TIME LIMIT ***\n"

    assert graded(examine(tmp_path, EPOCHS + words))[0] == ("external.time-limit", "established")


def test_a_log_that_is_still_written_to_is_a_run_that_is_on(tmp_path: Path) -> None:
    """Whoever holds it open may only be slow."""
    log = tmp_path / "train.log"
    log.write_text(EPOCHS)
    with log.open("ab") as out, subprocess.Popen(["sleep", "60"], stdout=out) as process:
        try:
            found = autopsy(str(log), None, SILENT).as_json()
        finally:
            process.kill()

    assert found["ending"]["kind"] == "running"
    assert str(process.pid) in found["ending"]["claim"]


def test_the_command_reads_the_newest_log_of_a_folder(holter: Holter) -> None:
    """Text for people, JSON for scripts; the script alone may be named."""
    holter.script("labels = {}\nlabels['cat']\n")
    done = subprocess.run([sys.executable, "train.py"], cwd=holter.folder, capture_output=True, check=False)
    (holter.folder / "nohup.out").write_bytes(done.stderr)
    shown, as_json = holter("autopsy", "train.py"), holter("autopsy", "--json")

    assert (shown.returncode, as_json.returncode) == (0, 0)
    assert "✗ The run ended with KeyError at train.py:2" in shown.stdout.decode()
    assert json.loads(as_json.stdout)["findings"][0]["cause"] == "user-error"


def test_without_a_log_it_says_what_to_name(holter: Holter) -> None:
    """Two is the code for a command line that can't be followed."""
    for words in ((), ("gone.log",), (".",)):
        done = holter("autopsy", *words)

        assert done.returncode == 2
        assert done.stderr.decode().count("\n") == 1
