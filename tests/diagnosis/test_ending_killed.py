"""A SIGKILL is lack of memory only where the kernel says so."""

from __future__ import annotations

import pytest
from build import GB, MB, TRAINER, WORKER, causes, exception, memory, ordinary_run, without_memory

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.ending.ending import ending_of


def growing_run(until=60):
    record = without_memory(ordinary_run(seconds=until), 5)
    for second in range(5, until):
        memory(record, second, 1 * GB + (second - 5) * 7 * GB / (until - 5))
    return record


def test_counter_rise_in_the_runs_cgroup_is_an_oom_kill():
    """SIGKILL with oom_kill 0 → 1 in the run's own cgroup is told as the kernel's OOM kill, with proof."""
    record = memory(growing_run(), 60.2, 1 * MB, oom_kill=1).exit(60, 137, "SIGKILL")

    ending = ending_of(record)

    assert ending.kind == "oom-killed"
    assert "killed by the kernel: out of memory" in ending.claim
    assert any("oom_kill 0 → 1" in one.value for one in ending.evidence)
    assert any(one.what == "process" and "killed" in one.value for one in ending.evidence)


def test_bare_sigkill_is_told_as_just_that():
    """SIGKILL with the counters still and memory low is killed, with the memory it had."""
    ending = ending_of(ordinary_run().exit(60, 137, "SIGKILL"))

    assert ending.kind == "killed"
    assert "2.0 GB of 8.0 GB" in ending.claim
    assert "lack of memory" not in ending.claim


def test_global_counter_alone_is_not_this_runs_oom():
    """Another container's OOM raises the machine's counter; with memory to spare it is not ours."""
    record = ordinary_run()
    record.sample(60.2, vm={"oom_kill": 8}, memory={"total": 64 * GB, "available": 40 * GB})

    ending = ending_of(record.exit(60, 137, "SIGKILL"))

    assert ending.kind == "killed"


def test_global_counter_with_the_kernels_line_naming_us_is():
    """The kernel's line that names a pid of the tree makes it an OOM kill, with both of its lines read."""
    record = ordinary_run()
    record.event("kernel", 59.9, oom=True, pid=TRAINER, constraint="CONSTRAINT_NONE", text="oom-kill:constraint=")
    record.event("kernel", 59.9, oom=True, pid=TRAINER, anon_rss=6 * GB, text="Out of memory: Killed process 10")

    ending = ending_of(record.exit(60, 137, "SIGKILL"))

    assert ending.kind == "oom-killed"
    assert any("Killed process 10" in one.value for one in ending.evidence)


def test_kernels_line_about_another_process_is_not_ours():
    """An OOM kill of a stranger's process does not explain our SIGKILL."""
    record = ordinary_run().event("kernel", 59.9, oom=True, pid=4242, text="Out of memory: Killed process 4242")

    assert ending_of(record.exit(60, 137, "SIGKILL")).kind == "killed"


def test_full_machine_with_a_rise_at_that_moment_is_an_oom_kill():
    """Without a cgroup limit or the kernel's log, the counter and a full machine together are proof."""
    record = ordinary_run()
    for line in record.timeline:
        line.pop("cgroup", None)
    record.sample(59.5, memory={"total": 64 * GB, "available": 1 * GB}, vm={"oom_kill": 7})
    record.sample(60.2, vm={"oom_kill": 8})

    assert ending_of(record.exit(60, 137, "SIGKILL")).kind == "oom-killed"


def test_oom_kill_early_in_the_run_does_not_explain_a_late_sigkill():
    """A worker lost at second 10 and a kill -9 five minutes later are two things."""
    record = ordinary_run(seconds=300)
    for line in record.timeline:
        if line["k"] == "sample" and line["m"] > 110:
            line["cgroup"]["oom_kill"] = 1

    ending = ending_of(record.exit(300, 137, "SIGKILL"))

    assert ending.kind == "killed"


def test_worker_as_the_victim_is_named_with_what_followed():
    """A DataLoader worker taken by the OOM killer ends the run as oom-killed though the trainer raised."""
    rows = [
        {"pid": TRAINER, "name": "python", "rss": 2 * GB},
        {"pid": WORKER, "name": "pt_data_worker", "rss": 5 * GB},
    ]
    record = ordinary_run().event("guest", 3, pid=WORKER, ppid=TRAINER, role="worker")
    memory(record, 55, 7.5 * GB, rows=rows)
    memory(record, 56, 2 * GB, oom_kill=1)
    record.event("process-gone", 55.8, pid=WORKER, rss=5 * GB, role="worker")
    message = f"DataLoader worker (pid {WORKER}) is killed by signal: Killed. "
    exception(record, 59, "RuntimeError", message).exit(60, 1)

    ending = ending_of(record)

    assert ending.kind == "oom-killed"
    assert f"a data worker (pid {WORKER}), which held 5.0 GB" in ending.claim
    assert "RuntimeError" in ending.claim
    assert "user-error" not in causes(verdict(record))


def test_worker_killed_without_memory_evidence_is_an_exception():
    """The same message without the kernel's counter stays the trainer's exception."""
    message = f"DataLoader worker (pid {WORKER}) is killed by signal: Killed. "
    record = exception(ordinary_run(), 59, "RuntimeError", message).exit(60, 1)

    assert ending_of(record).kind == "exception"


def test_ordinary_exception_beside_a_neighbours_oom_is_not_oom():
    """A ValueError while some process of the same container was OOM-killed stays an exception."""
    record = memory(ordinary_run(), 59.5, 2 * GB, oom_kill=1)
    exception(record, 59.6, "ValueError", "bad shape").exit(60, 1)

    ending = ending_of(record)

    assert ending.kind == "exception"


def test_oom_kill_that_the_run_survived_is_completed_with_a_finding():
    """Exit 0 after a worker was OOM-killed is completed, and the kill is not kept quiet."""
    record = ordinary_run(planned=550).event("guest", 3, pid=WORKER, role="worker")
    memory(record, 30.5, 7 * GB, oom_kill=0)
    for line in record.timeline:
        if line["k"] == "sample" and line["m"] > 131:
            line["cgroup"]["oom_kill"] = 1
    record.event("process-gone", 30.8, pid=WORKER, rss=5 * GB, role="worker").exit(60, 0)

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "completed"
    assert {finding.family for finding in diagnosis.findings} <= {"leak", "oversize"}
    assert diagnosis.findings


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (137, ""),
        (1, "torch.distributed...: failed (exitcode: -9) local_rank: 0 (pid: 10) of binary"),
        (1, "  exitcode  : -9 (pid: 10)\n  traceback : Signal 9 (SIGKILL) received by PID 10"),
        (1, "subprocess.CalledProcessError: Command 'python' died with <Signals.SIGKILL: 9>."),
    ],
)
def test_signal_behind_a_shell_or_launcher_is_seen_with_the_same_care(code, output):
    """A child's SIGKILL shows through 128+9 and launchers' reports, and is OOM only with the counter."""
    bare = ordinary_run(command=("sh", "run.sh")).exit(60, code)
    bare.output = output
    proven = memory(ordinary_run(command=("sh", "run.sh")), 59.8, 1 * GB, oom_kill=1).exit(60, code)
    proven.output = output

    assert ending_of(bare).kind == "killed"
    assert ending_of(bare).signal == "SIGKILL"
    assert ending_of(proven).kind == "oom-killed"


def test_exit_code_that_the_script_chose_is_no_signal():
    """sys.exit(137) by the user's own code is an exit code, not a kill."""
    record = ordinary_run().event("exit-called", 59, pid=TRAINER, file="/home/u/train.py", line=9, status="137")

    ending = ending_of(record.exit(60, 137))

    assert ending.kind == "exception"
    assert "exit code 137, called at train.py:9" in ending.claim


@pytest.mark.parametrize(("code", "kind"), [(143, "killed"), (129, "killed"), (130, "interrupted"), (139, "crashed")])
def test_shell_codes_are_read_as_their_signals(code, kind):
    """128+N of a shell script means signal N in a child."""
    assert ending_of(ordinary_run(command=("sh", "run.sh")).exit(60, code)).kind == kind


def test_sender_of_a_signal_is_named():
    """SIGTERM that reached Holter names who sent it, in the ending and in the finding."""
    record = ordinary_run().event("signal", 59, signal="SIGTERM", sender_pid=77, sender_uid=0, sender="systemd")
    diagnosis = verdict(record.exit(60, 143, "SIGTERM"))

    assert "systemd (pid 77, user 0)" in diagnosis.ending.claim
    assert causes(diagnosis) == ["external.signal"]
    assert diagnosis.findings[0].grade == "established"


def test_both_gone_at_once_is_told_without_guessing():
    """Recorder and keeper gone: the ending says that nothing saw it; memory is no fact."""
    record = ordinary_run()
    record.recorder_lost = True

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "killed"
    assert "nothing saw how" in diagnosis.ending.claim
    assert not diagnosis.findings


def test_both_gone_at_the_limit_gives_a_hypothesis_only():
    """Gone together with memory at 97 % of the limit: lack of memory is a guess and is graded as one."""
    record = growing_run()
    memory(record, 60, 7.8 * GB)
    record.recorder_lost = True

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "killed"
    assert [finding.grade for finding in diagnosis.findings] == ["hypothesis"]


def test_recorder_lost_but_keeper_saw_the_exit():
    """The keeper's `exited` is enough for an ending; the loss of the recorder is said."""
    record = ordinary_run(planned=5000).event("exited", 90, exit_code=0, signal=None)
    record.recorder_lost = True

    ending = ending_of(record)

    assert ending.kind == "completed"
    assert "recorder was lost" in ending.claim


def test_cache_filled_cgroup_is_not_near_its_limit():
    """Page cache fills a container to its limit and is given back: it is not counted as the run's memory."""
    record = ordinary_run()
    record.sample(59.9, cgroup={"path": "/a", "limit": 8 * GB, "usage": 7.9 * GB, "file": 6 * GB, "oom_kill": 0})

    diagnosis = verdict(record.exit(60, 137, "SIGKILL"))

    assert causes(diagnosis) == ["external.signal"]
    assert "1.9 GB of 8.0 GB" in diagnosis.ending.claim or "2.0 GB of 8.0 GB" in diagnosis.ending.claim


def test_signal_long_before_the_end_is_not_blamed():
    """A SIGTERM that the script took five minutes ago does not explain its exit code now."""
    record = ordinary_run(seconds=400).event("signal", 20, signal="SIGTERM", sender="bash", sender_pid=3)

    assert ending_of(record.exit(400, 3)).kind == "exception"


def test_signal_just_before_an_exit_code_is():
    """A script that answers SIGTERM with an exit code of its own was ended by that SIGTERM."""
    record = ordinary_run().event("signal", 58, signal="SIGTERM", sender="bash", sender_pid=3)

    assert ending_of(record.exit(60, 3)).kind == "killed"
