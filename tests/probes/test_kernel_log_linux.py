"""The kernel's own words about a run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("/dev/kmsg", allow_module_level=True)

from holter.errors import NoData
from holter.probes import kernel_log_linux
from holter.probes.kernel_log_linux import KernelLog, parse_record, parse_text

# These two lines were recorded on Linux 6.18 when a limit of 30 MB was exceeded.
CHOSEN = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/probe_exp,"
    "task_memcg=/probe_exp/inner,task=python3,pid=3311,uid=0"
)
KILLED = (
    "Memory cgroup out of memory: Killed process 3311 (python3) total-vm:94696kB, anon-rss:35968kB, "
    "file-rss:6564kB, shmem-rss:0kB, UID:0 pgtables:132kB oom_score_adj:0"
)


def record(text: str, facility: int = 0) -> bytes:
    return f"{facility << 3 | 3},1000,1224828940,-;{text}\n SUBSYSTEM=memory\n".encode()


def feed(monkeypatch, *answers: bytes | int) -> KernelLog:
    """A log that gives these records, or these error numbers, and then has no more."""
    log = KernelLog(os.devnull)
    queue = list(answers)

    def read(_fd: int, _size: int) -> bytes:
        if not queue:
            raise OSError(errno.EAGAIN, "no more")
        answer = queue.pop(0)
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer

    monkeypatch.setattr(kernel_log_linux.os, "read", read)
    return log


def test_a_kill_in_a_group_is_one_entry(monkeypatch):
    """The line that says who was chosen and the one that says who was killed come as one entry."""
    log = feed(monkeypatch, record(CHOSEN), record(KILLED))

    assert log.drain() == [
        {
            "kind": "oom",
            "text": KILLED,
            "oom": True,
            "pid": 3311,
            "victim": "python3",
            "anon_rss": 35968 * 1024,
            "constraint": "CONSTRAINT_MEMCG",
            "memcg": "/probe_exp",
            "at": 1224.82894,
        }
    ]
    assert log.drain() == []


def test_lines_that_come_apart(monkeypatch):
    """A choice whose kill comes with the next call is still one entry."""
    log = feed(monkeypatch, record(CHOSEN), errno.EAGAIN, record(KILLED))

    assert log.drain() == []
    assert [entry["memcg"] for entry in log.drain()] == ["/probe_exp"]


def test_a_choice_alone(monkeypatch):
    """A choice whose kill was never printed is told by itself at the next call."""
    log = feed(monkeypatch, record(CHOSEN))

    assert log.drain() == []
    assert [(entry["pid"], entry["oom"]) for entry in log.drain()] == [(3311, True)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "Out of memory: Killed process 812 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
            {"pid": 812, "victim": "python", "anon_rss": 8192, "constraint": "CONSTRAINT_NONE"},
        ),
        (
            "Out of memory (oom_kill_allocating_task): Killed process 8 (a) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
            {"pid": 8, "victim": "a", "constraint": "CONSTRAINT_NONE"},
        ),
        (
            "Killed process 77 (python), UID 1000, total-vm:9kB, anon-rss:4kB, file-rss:0kB",
            {"pid": 77, "victim": "python", "anon_rss": 4096},
        ),
        (
            "Memory cgroup out of memory: Killed process 5 (a) (b) 6 (c) total-vm:9kB, anon-rss:4kB, file-rss:0kB",
            {"pid": 5, "victim": "a) (b) 6 (c", "constraint": "CONSTRAINT_MEMCG"},
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            "task_memcg=/user.slice,task=a,pid=1,b,pid=99,uid=1000",
            {"pid": 99, "victim": "a,pid=1,b", "constraint": "CONSTRAINT_NONE"},
        ),
    ],
)
def test_kills(line, expected):
    """Kills as several kernels print them, also of processes with names made to confuse."""
    entry = parse_text(line)

    assert entry is not None
    assert entry["oom"] is True
    assert entry["text"] == line
    assert expected == {key: entry.get(key) for key in expected}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "python[123]: segfault at 0 ip 00007f1c sp 00007ffd error 4 in libtorch_cpu.so[7f1c+1000]",
            {"kind": "segfault", "pid": 123, "victim": "python"},
        ),
        (
            "traps: python[9] trap invalid opcode ip:7f sp:7f error:0 in libx.so[7f+1]",
            {"kind": "trap", "pid": 9, "victim": "python"},
        ),
        (
            "traps: python[9] general protection fault ip:7f sp:7f error:0 in libx.so[7f+1]",
            {"kind": "trap", "pid": 9},
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            {"kind": "xid", "xid": 79, "device": "0000:01:00", "pid": None},
        ),
        (
            "NVRM: Xid (PCI:0000:41:00): 31, pid=4242, name=python, Ch 00000008, MMU Fault",
            {"kind": "xid", "xid": 31, "pid": 4242},
        ),
        ("I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", {"kind": "io"}),
        ("blk_update_request: I/O error, dev sda, sector 1", {"kind": "io"}),
        ("nfs: server filer not responding, still trying", {"kind": "io"}),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading", {"kind": "io"}),
        (
            "INFO: task python:33 blocked for more than 120 seconds.",
            {"kind": "blocked", "pid": 33, "victim": "python"},
        ),
        ("mce: [Hardware Error]: Machine check events logged", {"kind": "hardware"}),
    ],
)
def test_other_faults(line, expected):
    """Crashes, GPU faults, failing disks and waits that never end are told, and none of them is a kill."""
    entry = parse_text(line)

    assert entry is not None
    assert entry["oom"] is False
    assert expected == {key: entry.get(key) for key in expected}


@pytest.mark.parametrize(
    "line",
    [
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom_reaper: reaped process 3311 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "Tasks state (memory values in pages):",
        "EXT4-fs (vda): mounted filesystem r/w without journal. Quota mode: none.",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06",
        "nvme nvme0: 8/0/0 default/read/poll queues",
        "systemd[1]: Killed process is not what this is about",
        "audit: type=1701 comm=python sig=11",
        "",
    ],
)
def test_lookalikes_are_silent(line):
    """Lines that merely use the same words are passed over."""
    assert parse_text(line) is None


def test_lines_of_programs_are_not_the_kernels():
    """Whoever may write to the log can write 'Killed process', but not in the kernel's name."""
    assert parse_record(record(KILLED, facility=1)) is None
    assert parse_record(record(KILLED)) == (1224.82894, KILLED)


@pytest.mark.parametrize("raw", [b"", b"nonsense", b";", b"a,b,c,-;x", b"6,1;x"])
def test_damaged_records(raw):
    """A record of another form is passed over."""
    assert parse_record(raw) is None


def test_escaped_bytes():
    """What the kernel escapes is turned back."""
    assert parse_record(b"6,1,0,-;pyth\\xc3\\xb6n[1]: segfault at\n") == (0.0, "pythön[1]: segfault at")


def test_overrun_is_survived(monkeypatch):
    """Lines that were overwritten before they were read are counted, and what follows is read."""
    log = feed(monkeypatch, errno.EPIPE, record(KILLED))

    assert [entry["pid"] for entry in log.drain()] == [3311]
    assert log.missed == 1


def test_no_log_here(tmp_path):
    """A container without the log says so."""
    with pytest.raises(NoData, match="container"):
        KernelLog(str(tmp_path / "kmsg"))


def test_a_log_that_is_closed_to_us(monkeypatch):
    """A log that may not be read names the cure."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(kernel_log_linux.os, "open", refuse)

    with pytest.raises(NoData, match="dmesg_restrict=0"):
        KernelLog()


def test_closed_log_is_empty():
    """After it was closed, nothing comes."""
    log = KernelLog(os.devnull)
    log.close()
    log.close()

    assert log.drain() == []


@pytest.mark.root
@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="needs the kernel log")
def test_the_real_log_starts_at_its_end():
    """The real log is opened at its end, and a program's line that looks like a kill is not one."""
    log = KernelLog()
    try:
        Path("/dev/kmsg").write_text(KILLED)

        assert log.drain() == []
    finally:
        log.close()


@pytest.mark.root
@pytest.mark.skipif(
    not os.access("/dev/kmsg", os.R_OK) or not os.access("/sys/fs/cgroup/memory/memory.oom_control", os.W_OK),
    reason="needs the kernel log and the memory controller of version 1",
)
def test_a_real_kill(until):
    """A real kill is read from the real log, with the group that set the limit."""
    group = Path(f"/sys/fs/cgroup/memory/holter-log-{os.getpid()}")
    group.mkdir()
    log = KernelLog()
    process = None
    try:
        (group / "memory.limit_in_bytes").write_text("40000000")
        if (group / "memory.memsw.limit_in_bytes").exists():  # swap would only delay it
            (group / "memory.memsw.limit_in_bytes").write_text("40000000")
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", "input(); x = b'x' * 90_000_000"], stdin=subprocess.PIPE
        )
        (group / "cgroup.procs").write_text(str(process.pid))
        process.communicate(b"\n")
        pid = process.pid

        entry = until(lambda: next((entry for entry in log.drain() if entry.get("pid") == pid), None))

        assert (entry["kind"], entry["oom"], entry["constraint"]) == ("oom", True, "CONSTRAINT_MEMCG")
        assert f"/{group.name}" == entry["memcg"]
        assert 20e6 < entry["anon_rss"] < 60e6
    finally:
        log.close()
        if process is not None:
            process.kill()
            process.wait()
        group.rmdir()
