"""The control group around a run, in each shape that containers and clusters give it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.errors import NoData
from holter.probes.cgroup_linux import Cgroup
from holter.probes.probe import Tree

RUN = Tree(100, [100])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def probe(folder: str, clock: Clock | None = None) -> Cgroup:
    return Cgroup(f"{folder}/proc", f"{folder}/sys", clock or Clock())


def test_version_2_container(recorded):
    """In a container with its own namespace the limit is at the mount point."""
    assert probe(recorded("cgroup_v2_container")).read(RUN) == {
        "version": 2,
        "path": "/",
        "limit": 8589934592,
        "limit_path": "/",
        "usage": 8012345344,
        "anon": 7516192768,
        "file": 402653184,
        "shmem": 268435456,
        "refault_anon": 0,
        "refault_file": 15331,
        "swap_usage": 0,
        "swap_limit": 0,
        "oom_kill": 2,
        "oom": 3,
        "at_limit": 1843,
        "peak": 8589934592,
        "cpu_throttled_s": 61.5,
        "cpu_limit": 2.0,
        "pids": 87,
        "pids_limit": 4096,
    }


def test_limit_further_up(recorded):
    """A limit that sits above the run's own group is found there, with the usage and the kills counted there."""
    reading = probe(recorded("cgroup_v2_slices")).read(RUN)

    assert reading["path"] == "/user.slice/user-1000.slice/session-3.scope"
    assert reading["limit_path"] == "/user.slice/user-1000.slice"
    assert tuple(reading[k] for k in ("limit", "usage", "oom_kill", "at_limit")) == (6000000000, 5900000000, 1, 10)
    assert reading["high"] == 5500000000
    assert (reading["pids"], reading["pids_limit"]) == (12, 10000)
    assert "cpu_limit" not in reading


def test_version_1_container_without_a_namespace(recorded):
    """The host's path is taken apart by what the mount shows of it; swap is what the double limit leaves."""
    assert probe(recorded("cgroup_v1_container")).read(RUN) == {
        "version": 1,
        "path": "/docker/3f2a",
        "limit": 4294967296,
        "limit_path": "/docker/3f2a",
        "usage": 4290000000,
        "anon": 2145000000,
        "file": 536250000,
        "shmem": 8192,
        "swap_usage": 4096,
        "swap_limit": 4294967296,
        "oom_kill": 1,
        "at_limit": 991,
        "peak": 4294967296,
        "cpu_throttled_s": 2.5,
        "cpu_limit": 1.5,
        "pids": 21,
    }


def test_hybrid_adds_up_the_kills_on_the_way(recorded):
    """Version 1 counts a kill in the victim's group: the kills from there up to the limit are added, none above."""
    reading = probe(recorded("cgroup_hybrid")).read(RUN)

    assert (reading["version"], reading["path"], reading["limit_path"]) == (1, "/jobs/job7", "/jobs")
    assert tuple(reading[k] for k in ("limit", "usage", "oom_kill", "at_limit")) == (30000000, 29900000, 1, 126)
    assert "oom" not in reading


def test_unlimited_is_no_limit(recorded):
    """What version 1 writes for 'no limit' is not a limit, and the run's own group is what is read."""
    reading = probe(recorded("cgroup_v1_unlimited")).read(RUN)

    assert "limit" not in reading
    assert "limit_path" not in reading
    assert (reading["usage"], reading["oom_kill"]) == (800, 0)


def test_limit_above_the_machine_is_no_limit(recorded, tmp_path):
    """A limit of more memory than the machine has is never met."""
    shutil.copytree(recorded("cgroup_v2_container"), tmp_path / "t")
    (tmp_path / "t/sys/fs/cgroup/memory.max").write_text("99999999999999\n")

    assert "limit" not in probe(str(tmp_path / "t")).read(RUN)


def test_a_limit_that_appears_later(recorded, tmp_path):
    """A limit that is set while the run is on is found within some seconds, and a changed one at once."""
    shutil.copytree(recorded("cgroup_v2_container"), tmp_path / "t")
    limit = tmp_path / "t/sys/fs/cgroup/memory.max"
    limit.write_text("max\n")
    clock = Clock()
    reader = probe(str(tmp_path / "t"), clock)
    assert "limit" not in reader.read(RUN)

    limit.write_text("5000000000\n")
    clock.now = 6
    assert reader.read(RUN)["limit"] == 5000000000
    limit.write_text("6000000000\n")
    assert reader.read(RUN)["limit"] == 6000000000


def test_local_events_are_added_up(recorded, tmp_path):
    """Version 2 mounted with memory_localevents counts as version 1 does."""
    shutil.copytree(recorded("cgroup_v2_slices"), tmp_path / "t")
    mountinfo = tmp_path / "t/proc/self/mountinfo"
    mountinfo.write_text(mountinfo.read_text().replace("nsdelegate", "nsdelegate,memory_localevents"))
    own = tmp_path / "t/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/memory.events"
    own.write_text("oom_kill 4\n")

    assert probe(str(tmp_path / "t")).read(RUN)["oom_kill"] == 1 + 4


def test_an_exiting_process_shows_the_wrong_group(recorded, tmp_path):
    """Version 1 shows an exiting process in '/': the counters are still read where it was."""
    shutil.copytree(recorded("cgroup_hybrid"), tmp_path / "t")
    reader = probe(str(tmp_path / "t"))
    reader.read(RUN)

    (tmp_path / "t/proc/100/cgroup").write_text("8:pids:/\n4:memory:/\n1:cpu:/\n0::/\n")
    assert reader.read(RUN)["path"] == "/jobs/job7"
    shutil.rmtree(tmp_path / "t/proc/100")
    (tmp_path / "t/sys/fs/cgroup/memory/jobs/job7/memory.oom_control").write_text("oom_kill 9\n")
    assert reader.read(RUN)["oom_kill"] == 9


def test_a_process_that_is_moved_is_followed(recorded, tmp_path):
    """When the run moves to another group, that group is read."""
    shutil.copytree(recorded("cgroup_hybrid"), tmp_path / "t")
    reader = probe(str(tmp_path / "t"))
    reader.read(RUN)

    (tmp_path / "t/proc/100/cgroup").write_text("4:memory:/jobs\n0::/\n")

    assert reader.read(RUN)["path"] == "/jobs"


def test_a_path_that_cannot_be_seen(recorded, tmp_path):
    """A group whose folder is not visible from here counts as the nearest one above it that is."""
    shutil.copytree(recorded("cgroup_v2_container"), tmp_path / "t")
    (tmp_path / "t/proc/100/cgroup").write_text("0::/../../kubepods/pod1\n")

    assert probe(str(tmp_path / "t")).read(RUN)["limit"] == 8589934592


def test_a_field_that_is_missing_costs_only_itself(recorded, tmp_path):
    """An old kernel without memory.peak and with an unreadable memory.stat still gives the rest."""
    shutil.copytree(recorded("cgroup_v2_container"), tmp_path / "t")
    os.remove(tmp_path / "t/sys/fs/cgroup/memory.peak")
    (tmp_path / "t/sys/fs/cgroup/memory.stat").write_bytes(b"\xff garbage\nanon\nfile x\n")

    reading = probe(str(tmp_path / "t")).read(RUN)

    assert not {"peak", "anon", "file"} & set(reading)
    assert (reading["limit"], reading["oom_kill"]) == (8589934592, 2)


def test_no_control_groups_at_all(tmp_path):
    """A machine without control groups says so."""
    (tmp_path / "proc/100").mkdir(parents=True)
    (tmp_path / "proc/100/cgroup").write_text("")

    with pytest.raises(NoData, match="cgroup"):
        probe(str(tmp_path)).read(RUN)


MEMORY_1 = Path("/sys/fs/cgroup/memory")


@pytest.mark.root
@pytest.mark.skipif(
    not (MEMORY_1 / "memory.oom_control").exists() or not os.access(MEMORY_1, os.W_OK) or os.geteuid() != 0,
    reason="needs root and the memory controller of version 1",
)
def test_a_real_kill_is_counted():
    """A process that grows past a real limit is killed by the kernel, and the counter goes from 0 to 1."""
    upper = MEMORY_1 / f"holter-test-{os.getpid()}"
    lower = upper / "run"
    lower.mkdir(parents=True)
    process = None
    try:
        (upper / "memory.limit_in_bytes").write_text("40000000")
        swaps = len(Path("/proc/swaps").read_text().splitlines()) > 1
        if swaps:  # it would only delay the kill
            (upper / "memory.memsw.limit_in_bytes").write_text("40000000")
        code = "input(); x = b'x' * 100_000_000"
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)
        (lower / "cgroup.procs").write_text(str(process.pid))
        reader = Cgroup()
        tree = Tree(process.pid, [process.pid])
        before = reader.read(tree)

        process.communicate(b"\n")
        after = reader.read(tree)

        assert process.returncode == -signal.SIGKILL
        assert f"/{upper.name}" == before["limit_path"]
        assert f"/{upper.name}/run" == before["path"]
        assert 39e6 < before["limit"] <= 40e6
        assert (before["oom_kill"], after["oom_kill"]) == (0, 1)
        # Of a limit of memory and swap together the kernel counts no hits.
        assert swaps or after["at_limit"] > before["at_limit"]
        assert after["peak"] > 35e6
    finally:
        if process is not None:
            process.kill()
            process.wait()
        lower.rmdir()
        upper.rmdir()


MEMORY_2 = Path("/sys/fs/cgroup")


def version_2_can_limit() -> bool:
    try:
        return os.geteuid() == 0 and "memory" in (MEMORY_2 / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


@pytest.mark.root
@pytest.mark.skipif(not version_2_can_limit(), reason="needs root and the memory controller of version 2")
def test_a_real_kill_is_counted_by_version_2():
    """A process that grows past a real limit one group up is killed, and the limit's group counts it."""
    upper = MEMORY_2 / f"holter-test-{os.getpid()}"
    lower = upper / "run"
    upper.mkdir()
    process = None
    try:
        (upper / "memory.max").write_text("40000000")
        (upper / "cgroup.subtree_control").write_text("+memory")
        lower.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", "input(); x = b'x' * 100_000_000"], stdin=subprocess.PIPE
        )
        (lower / "cgroup.procs").write_text(str(process.pid))
        reader = Cgroup()
        tree = Tree(process.pid, [process.pid])
        before = reader.read(tree)

        process.communicate(b"\n")
        after = reader.read(tree)

        assert process.returncode == -signal.SIGKILL
        assert (before["version"], before["limit_path"], before["path"]) == (2, f"/{upper.name}", f"/{upper.name}/run")
        assert 39e6 < before["limit"] <= 40e6
        assert (before["oom_kill"], after["oom_kill"]) == (0, 1)
        assert after["at_limit"] > before["at_limit"]
        assert after["oom"] > before["oom"]
    finally:
        if process is not None:
            process.kill()
            process.wait()
        if lower.exists():
            lower.rmdir()
        upper.rmdir()
