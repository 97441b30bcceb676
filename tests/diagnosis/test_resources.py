"""Crashes, full disks, exhausted resources and outside hands, each beside its look-alike."""

from __future__ import annotations

import pytest
from build import GB, MB, TRAINER, WORKER, causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict

FATAL = (
    "Fatal Python error: Segmentation fault\n\n"
    "Thread 0x1 (most recent call first):\n"
    '  File "/venv/lib/python3.11/threading.py", line 1 in wait\n\n'
    "Current thread 0x2 (most recent call first):\n"
    '  File "/venv/lib/python3.11/site-packages/x/ops.py", line 5 in gather\n'
    '  File "/home/u/train.py", line 8 in <module>\n'
)


def disk(record, free, path="/data"):
    row = {"path": path, "mount": path, "total": 100 * GB, "free": free, "inodes_free": 5}
    return record.sample(59, disk={"list": [row]})


def test_native_crash_has_the_stack_of_the_current_thread():
    """faulthandler's text in the output gives the user's line of the thread that crashed."""
    record = ordinary_run().exit(60, 139, "SIGSEGV")
    record.output = FATAL

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "crashed"
    assert causes(diagnosis) == ["native-crash"]
    assert (diagnosis.findings[0].grade, diagnosis.findings[0].culprit.line) == ("established", 8)


def test_a_crash_in_the_agent_is_not_told_as_the_programs():
    """The innermost frame is the agent's: no line of the user's is blamed for it."""
    file, wrapper = (
        "/x/holter/agent/torch/nonfinite/watch.py",
        "/x/holter/agent/torch/observe/adapter.py#importlib._bootstrap",
    )
    ours = [f'  File "{file}", line 209 in is_bad', f'  File "{wrapper}", line 353 in backward']
    record, within = ordinary_run().exit(60, 139, "SIGSEGV"), ordinary_run().exit(60, 139, "SIGSEGV")
    heading, *frames = FATAL.rpartition("(most recent call first):\n")[::2]
    heading += "(most recent call first):\n"
    record.output = heading + "\n".join(ours) + "\n" + frames[0]
    within.output = heading + ours[1] + "\n" + frames[0]

    finding = verdict(record).findings[0]

    assert "in Holter's own code, in is_bad() of watch.py:209" in finding.claim
    assert finding.culprit is None
    assert verdict(within).findings[0].culprit is not None  # a wrapper's crash is that of what it called


def test_native_crash_without_a_stack_is_supported_only():
    """Where nothing but the signal is known, the grade says so."""
    diagnosis = verdict(ordinary_run().exit(60, 134, "SIGABRT"))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("native-crash", "supported")]


def test_segfault_that_was_survived_is_no_finding():
    """A crash report of a helper in the output of a completed run is left alone."""
    record = ordinary_run(planned=550).exit(60, 0)
    record.output = FATAL

    assert verdict(record).healthy


def test_disk_full_has_path_and_free_space():
    """ENOSPC names the path, and the space that was left there."""
    message = "[Errno 28] No space left on device: '/data/ckpt/7.pt'"
    diagnosis = verdict(exception(disk(ordinary_run(), 0.0), 59, "OSError", message).exit(60, 1))

    assert causes(diagnosis) == ["disk-full"]
    assert "/data/ckpt/7.pt" in diagnosis.findings[0].claim
    assert "0 bytes of 100 GB" in diagnosis.findings[0].claim
    assert diagnosis.findings[0].culprit.line == 7


def test_writer_that_failed_on_a_roomy_disk_is_not_disk_full():
    """PyTorch's writer fails for other reasons too; with 50 GB free it stays an ordinary error."""
    message = "[enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/0"
    record = exception(disk(ordinary_run(), 50 * GB), 59, "RuntimeError", message).exit(60, 1)

    assert causes(verdict(record)) == ["user-error"]


def test_writer_that_failed_on_a_full_disk_is():
    """The same words with the disk full are supported as disk-full."""
    message = "[enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/0"
    diagnosis = verdict(exception(disk(ordinary_run(), 1 * MB), 59, "RuntimeError", message).exit(60, 1))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("disk-full", "supported")]


def test_no_space_on_dev_shm_is_shared_memory():
    """The same errno on /dev/shm is another illness with another cure."""
    record = ordinary_run().sample(58, shm={"total": 64 * MB, "free": 0.0})
    message = "[Errno 28] No space left on device: '/dev/shm/x'"

    diagnosis = verdict(exception(record, 59, "OSError", message).exit(60, 1))

    assert causes(diagnosis) == ["resource.shared-memory"]


def test_bus_error_in_a_worker_with_shm_full():
    """A worker's bus error while /dev/shm was full is shared memory."""
    record = ordinary_run().sample(58, shm={"total": 64 * MB, "free": 1 * MB})
    message = f"DataLoader worker (pid {WORKER}) is killed by signal: Bus error. "

    diagnosis = verdict(exception(record, 59, "RuntimeError", message).exit(60, 1))

    assert causes(diagnosis) == ["resource.shared-memory"]
    assert "64.0 MB" in diagnosis.findings[0].claim


def test_bus_error_with_room_in_shm_is_a_crash():
    """A bus error of a truncated memory-mapped file leaves /dev/shm with room: a native crash."""
    record = ordinary_run().sample(58, shm={"total": 64 * GB, "free": 60 * GB}).exit(60, 135, "SIGBUS")

    assert causes(verdict(record)) == ["native-crash"]


def test_too_many_open_files_has_counts():
    """EMFILE tells how many files the process held, of how many."""
    record = ordinary_run().sample(58, rlimits={"nofile": 1024})
    rows = [{"pid": TRAINER, "name": "python", "rss": 1, "fds": 1020}]
    record.sample(58.5, processes={"rss": 1 * GB, "list": rows})

    diagnosis = verdict(exception(record, 59, "OSError", "[Errno 24] Too many open files: 'a.npy'").exit(60, 1))

    assert causes(diagnosis) == ["resource.file-descriptors"]
    assert "1,020 of 1,024" in diagnosis.findings[0].claim


def test_many_open_files_without_an_error_are_no_finding():
    """A process near its limit of open files that ends well is well."""
    record = ordinary_run(planned=550).sample(58, rlimits={"nofile": 32})

    assert verdict(record.exit(60, 0)).healthy


def test_threads_at_the_pids_limit():
    """ "can't start new thread" at the container's pids limit is established."""
    record = ordinary_run().sample(59, cgroup={"path": "/a", "pids": 512, "pids_limit": 512})

    diagnosis = verdict(exception(record, 59, "RuntimeError", "can't start new thread").exit(60, 1))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("resource.processes", "established")]
    assert "512 of 512" in diagnosis.findings[0].claim


def test_eagain_of_a_socket_is_no_want_of_processes():
    """EAGAIN without a fork in the stack is an ordinary error."""
    message = "[Errno 11] Resource temporarily unavailable"
    record = exception(ordinary_run(), 59, "BlockingIOError", message).exit(60, 1)

    assert causes(verdict(record)) == ["user-error"]


@pytest.mark.parametrize(("free", "cause"), [(100_000, "disk-full"), (50 * GB, "user-error")])
def test_what_was_free_when_a_checkpoint_failed_decides(free, cause):
    """A file that broke off says nothing of why; the file system it was on does."""
    message = "[enforce fail at inline_container.cc:672] . unexpected pos 768 vs 662"
    record = ordinary_run().event("save-failed", 59, pid=TRAINER, path="/data/run", free=free, total=100 * GB)

    assert causes(verdict(exception(record, 59, "RuntimeError", message).exit(60, 1)))[0] == cause


def test_closed_terminal():
    """SIGHUP is the closed terminal, and nothing else is said."""
    assert causes(verdict(ordinary_run().exit(60, 129, "SIGHUP"))) == ["external.hangup"]


def failed_to_write(code, stdout="tty"):
    """A run whose write failed with an input/output error on this line."""
    record = ordinary_run().event("started", 0, stdin="tty", stdout=stdout, stderr=stdout)
    frame = {"file": "/home/u/train.py", "line": 7, "function": "main", "code": code, "user": True}
    error = {"type": "OSError", "message": "[Errno 5] Input/output error", "frames": [frame], "main": True}
    return record.event("exception", 59, pid=TRAINER, **error).exit(60, 1)


def test_a_terminal_that_is_gone_when_the_script_prints():
    """Where the signal does not come, the next line that is printed fails."""
    assert causes(verdict(failed_to_write('print(f"epoch {epoch}", flush=True)'))) == ["external.hangup"]


@pytest.mark.parametrize(
    ("code", "stdout"), [("torch.save(model.state_dict(), path)", "tty"), ('print("epoch")', "file")]
)
def test_a_write_that_fails_elsewhere_is_no_closed_terminal(code, stdout):
    """A failing disk raises the same error, from other lines or into a file."""
    assert "external.hangup" not in causes(verdict(failed_to_write(code, stdout)))


@pytest.mark.parametrize(
    ("sender", "output", "grade"),
    [
        ("", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01 DUE TO TIME LIMIT ***", "established"),
        ("slurmstepd", "", "supported"),
        ("timeout", "", "established"),
    ],
)
def test_time_limits(sender, output, grade):
    """A scheduler's words, or a signal from one, are a time limit."""
    record = ordinary_run()
    if sender:
        record.event("signal", 59.5, signal="SIGTERM", sender=sender, sender_pid=4)
    record.exit(60, 143, "SIGTERM").output = output

    assert [(f.cause, f.grade) for f in verdict(record).findings] == [("external.time-limit", grade)]


def test_timeout_around_the_command():
    """timeout(1) ends with 124, which is no error of the script's."""
    record = ordinary_run(command=("timeout", "60", "python", "train.py")).exit(60, 124)

    assert verdict(record).ending.kind == "killed"
    assert causes(verdict(record)) == ["external.time-limit"]


def test_exit_124_of_a_script_is_no_time_limit():
    """The same number from an ordinary command says nothing about time."""
    assert not verdict(ordinary_run().exit(60, 124)).findings


def test_sigkill_far_from_the_limit_is_supported_as_outside():
    """SIGKILL with still counters and memory to spare came from outside, and the claim says both."""
    diagnosis = verdict(ordinary_run().exit(60, 137, "SIGKILL"))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("external.signal", "supported")]
    assert "25 %" in diagnosis.findings[0].claim


def test_sigkill_without_any_counter_is_a_hypothesis():
    """Where no counter could be read, nothing is supported."""
    record = ordinary_run()
    for line in record.timeline:
        line.pop("cgroup", None)
        line.pop("vm", None)

    assert [f.grade for f in verdict(record.exit(60, 137, "SIGKILL")).findings] == ["hypothesis"]
