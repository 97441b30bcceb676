"""The machine's own figures: memory, paging, pressure, load, network, shared memory, limits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.errors import NoData
from holter.probes.load_linux import Load
from holter.probes.memory_linux import Memory
from holter.probes.network_linux import Network, parse_net_dev
from holter.probes.pressure_linux import Pressure
from holter.probes.probe import Tree
from holter.probes.rlimits_linux import Rlimits
from holter.probes.shm_linux import Shm
from holter.probes.vm_linux import Vm

RUN = Tree(100, [100])
HERE = Tree(os.getpid(), [os.getpid()])


def test_recorded_memory(recorded):
    """meminfo's kilobytes become bytes under the record's names."""
    reading = Memory(recorded("machine")).read(RUN)

    assert {"total", "available", "free", "shmem", "swap_total", "swap_free"} == set(reading)
    assert (reading["total"], reading["swap_total"]) == (24684100 * 1024, 0)


def test_memory_here():
    """The real machine has memory, and less of it free than in all."""
    reading = Memory().read(HERE)

    assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") == reading["total"]
    assert 0 < reading["free"] < reading["total"]


def test_recorded_paging(recorded):
    """Counters whose names merely begin alike are not taken for ours."""
    assert Vm(recorded("machine")).read(RUN) == {
        "pswpin": 0,
        "oom_kill": 1,
    }


def test_recorded_pressure(tmp_path):
    """Both lines of each resource are read; the CPU of an older kernel has only one."""
    folder = tmp_path / "pressure"
    folder.mkdir()
    (folder / "memory").write_text(
        "some avg10=12.50 avg60=3.10 avg300=0.70 total=776123\nfull avg10=9.75 avg60=2.00 avg300=0.50 total=628001\n"
    )
    (folder / "cpu").write_text("some avg10=0.72 avg60=0.31 avg300=0.07 total=4742234\n")
    (folder / "io").write_text("nonsense\n\nsome avg10=x\n")

    assert Pressure(str(tmp_path)).read(RUN) == {
        "memory": {"some_us": 776123, "some10": 12.5},
        "cpu": {"some_us": 4742234, "some10": 0.72},
    }


def test_pressure_of_this_kernel(recorded):
    """The files as this kernel writes them are read in full."""
    reading = Pressure(recorded("machine")).read(RUN)

    assert {"memory", "cpu", "io"} == set(reading)
    assert {"some_us", "some10"} == set(reading["io"])


def test_no_pressure_names_the_cure(tmp_path):
    """Without PSI the reason names the kernel that has it and the switch that turns it on."""
    with pytest.raises(NoData, match=r"4\.20.*psi=1"):
        Pressure(str(tmp_path)).read(RUN)


def test_recorded_load(recorded):
    """The load and the CPUs."""
    assert Load(recorded("machine"), cpus=8).read(RUN) == {"load1": 0.0, "cpus": 8}


def test_damaged_load_is_no_data(tmp_path):
    """A file of another form is no data, not a crash."""
    (tmp_path / "loadavg").write_text("?\n")

    with pytest.raises(NoData):
        Load(str(tmp_path)).read(RUN)


def test_recorded_network(recorded):
    """Loopback's 3193 bytes are left out."""
    assert Network(recorded("machine")).read(RUN) == {"rx_bytes": 125928115}


def test_container_bridges_are_not_counted_twice():
    """What passes a bridge or a container's pair has passed the real interface."""
    row = "{}: {} 1 0 0 0 0 0 0 {} 1 0 0 0 0 0 0\n"
    raw = "".join(row.format(name, 100, 10) for name in ("lo", "eth0", "docker0", "veth12ab", "br-77", "brick0"))

    assert parse_net_dev(raw.encode()) == {"rx_bytes": 200}


def test_network_of_a_command_that_is_gone(tmp_path):
    """A command that has just ended has no traffic, and that is no failure."""
    assert Network(str(tmp_path)).read(RUN) == {}


def test_network_with_loopback_only():
    """A namespace without interfaces gives no zero."""
    assert parse_net_dev(b"    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n") == {}


def test_shared_memory_fills():
    """A file of 5 MB in /dev/shm leaves 5 MB less."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    path = Path(f"/dev/shm/holter-test-{os.getpid()}")
    taken = []
    while len(taken) < 50 and max(taken, default=0) < 4_000_000:  # other programs take and give meanwhile
        before = Shm().read(HERE)
        try:
            path.write_bytes(b"x" * 5_000_000)
            after = Shm().read(HERE)
        finally:
            path.unlink()
        assert before["total"] == after["total"]
        taken.append(before["free"] - after["free"])

    assert taken[-1] > 4_000_000


def test_no_shared_memory(tmp_path):
    """A machine without /dev/shm says so."""
    with pytest.raises(NoData, match="not there"):
        Shm(str(tmp_path / "no")).read(HERE)


def test_recorded_limits(recorded):
    """Soft limits are read; those that are unlimited are left out."""
    assert Rlimits(recorded("machine")).read(RUN) == {"nofile": 20000, "nproc": 96349, "core": 0}


def test_limits_of_a_real_child():
    """A child that was started with 77 descriptors and 3 GB of addresses shows both."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 77))
        resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, 3 * 10**9))

    process = subprocess.Popen(["sleep", "600"], preexec_fn=limit)
    try:
        reading = Rlimits().read(Tree(process.pid, [process.pid]))
    finally:
        process.kill()
        process.wait()

    assert (reading["nofile"], reading["as"]) == (77, 3 * 10**9)


def test_limits_of_a_command_that_is_gone(tmp_path):
    """A command that has just ended has no limits, and that is no failure."""
    assert Rlimits(str(tmp_path)).read(RUN) == {}
