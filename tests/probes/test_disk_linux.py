"""Space where the run writes."""

from __future__ import annotations

import os
import sys
import threading

import pytest

if sys.platform != "linux":
    pytest.skip("/proc", allow_module_level=True)

from holter.errors import NoData
from holter.probes import disk_linux
from holter.probes.disk_linux import Disk, mount_of, parse_mountinfo
from holter.probes.probe import Tree
from holter.probes.procfs_linux import opened_for_writing

MOUNTINFO = b"""21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
23 21 0:6 / /dev rw - devtmpfs udev rw
24 23 0:7 / /dev/shm rw - tmpfs tmpfs rw
30 21 0:44 / /mnt/my\\040data rw shared:3 - nfs4 server:/x rw
31 21 8:17 / /data rw - ext4 /dev/sdb1 rw
32 21 8:33 / /data rw - xfs /dev/sdc1 rw
33 21 0:9 / /proc/fs/nfsd rw - nfsd nfsd rw
"""
SPACE = os.statvfs_result((4096, 4096, 1000, 500, 400, 100, 50, 40, 0, 255))


def run_of(tmp_path, files: dict[int, tuple[str, str, int]], cwd: str = "/home/me") -> Tree:
    folder = tmp_path / "100"
    (folder / "fd").mkdir(parents=True)
    (folder / "fdinfo").mkdir()
    (folder / "mountinfo").write_bytes(MOUNTINFO)
    (folder / "environ").write_bytes(b"A=1\0TMPDIR=/dev/shm/tmp\0")
    os.symlink(cwd, folder / "cwd")
    for number, (path, flags, mount) in files.items():
        os.symlink(path, folder / "fd" / str(number))
        (folder / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t{mount}\nino:\t5\n")
    return Tree(100, [100])


def test_later_mounts_cover_earlier_ones():
    """A path lies on the longest mount above it, and of two at one place on the later."""
    mounts = parse_mountinfo(MOUNTINFO)

    assert mount_of("/data/a", mounts).number == 32
    assert mount_of("/database/a", mounts).number == 21
    assert mount_of("/mnt/my data/x", mounts).point == "/mnt/my data"


def test_flags():
    """Only descriptors that can be written to count."""
    assert opened_for_writing(b"pos:\t0\nflags:\t02100001\nmnt_id:\t21\n") == 21
    assert opened_for_writing(b"pos:\t0\nflags:\t0100002\nmnt_id:\t21\n") == 21
    assert opened_for_writing(b"pos:\t0\nflags:\t0100000\nmnt_id:\t21\n") is None
    assert opened_for_writing(b"") is None


def test_only_what_is_written_to(tmp_path):
    """A file that is read, a socket, a device and shared memory name no place; a file being written does."""
    tree = run_of(
        tmp_path,
        {
            0: ("/dev/null", "0100002", 23),
            1: ("socket:[123]", "02", 9),
            2: ("/mnt/my data/train.bin", "0100000", 30),
            3: ("/dev/shm/torch_1", "0100002", 24),
            4: ("/data/ckpt/last.pt (deleted)", "0100001", 32),
        },
    )

    reading = Disk(str(tmp_path), home="/home/me/.holter", statvfs=lambda _: SPACE, clock=lambda: 0.0).read(tree)

    row = {"total": 4096000, "free": 1638400, "inodes_free": 40}
    assert [
        {"path": "/home/me", "mount": "/", **row},
        {"path": "/data/ckpt/last.pt", "mount": "/data", **row},
    ] == reading["list"]


def test_a_place_once_written_to_stays(tmp_path):
    """A checkpoint that was closed again still names its file system."""
    tree = run_of(tmp_path, {4: ("/data/ckpt/last.pt", "0100001", 32)})
    probe = Disk(str(tmp_path), home="/home", statvfs=lambda _: SPACE, clock=lambda: 0.0)
    probe.read(tree)
    os.remove(tmp_path / "100/fd/4")

    assert [row["mount"] for row in probe.read(tree)["list"]] == ["/", "/data"]


@pytest.mark.parametrize(("written", "mounts"), [(300_000, ["/", "/data"]), (10_000, ["/"])])
def test_a_file_system_that_fills_counts_where_this_run_wrote_as_much(tmp_path, written, mounts):
    """Checkpoints are written and closed between two readings; what other programs write is not the run's."""
    full = {"/data": SPACE}
    tree = run_of(tmp_path, {})
    (tmp_path / "100/io").write_text("rchar: 5\nwchar: 1000\n")
    probe = Disk(str(tmp_path), home="/home", statvfs=lambda path: full.get(path, SPACE), clock=lambda: 0.0)
    probe.read(tree)
    (tmp_path / "100/io").write_text(f"rchar: 5\nwchar: {1000 + written}\n")
    full["/data"] = os.statvfs_result((4096, 4096, 1000, 450, 350, 100, 50, 40, 0, 255))

    assert [row["mount"] for row in probe.read(tree)["list"]] == mounts


def test_dead_network_mount(tmp_path, monkeypatch):
    """A server that does not answer is named and waited for only once, while the other places are read."""
    monkeypatch.setattr(disk_linux, "MAX_WAIT_S", 0.01)
    server_is_back = threading.Event()
    asked = []

    def statvfs(path: str) -> os.statvfs_result:
        if path == "/mnt/my data":
            asked.append(path)
            server_is_back.wait(60)
        return SPACE

    tree = run_of(tmp_path, {4: ("/mnt/my data/x", "0100001", 30)})
    probe = Disk(str(tmp_path), home="/home", statvfs=statvfs, clock=lambda: 0.0)
    try:
        for _ in range(3):
            reading = probe.read(tree)
            assert [row["mount"] for row in reading["list"]] == ["/"]
        assert len(asked) == 1
    finally:
        server_is_back.set()
    monkeypatch.setattr(disk_linux, "MAX_WAIT_S", 30)
    assert [row["mount"] for row in probe.read(tree)["list"]] == ["/", "/mnt/my data"]


def test_nothing_answers(tmp_path, monkeypatch):
    """When the run writes only to a dead server, there is no data, and the reason names the place."""
    monkeypatch.setattr(disk_linux, "MAX_WAIT_S", 0.01)
    (tmp_path / "p").mkdir()
    tree = run_of(tmp_path / "p", {}, cwd="/mnt/my data/run")
    (tmp_path / "p/100/mountinfo").write_bytes(MOUNTINFO.split(b"\n", 1)[1])
    event = threading.Event()

    def statvfs(path: str) -> os.statvfs_result:
        if path == "/mnt/my data":
            event.wait(60)
        return SPACE

    try:
        with pytest.raises(NoData, match="/mnt/my data"):
            Disk(str(tmp_path / "p"), home="/nowhere", statvfs=statvfs).read(tree)
    finally:
        event.set()


def test_the_search_is_budgeted(tmp_path):
    """Many descriptors are looked through over several readings, and the last is found in the end."""
    files = {n: (f"/lib/{n}", "0100000", 21) for n in range(3, 50)}
    tree = run_of(tmp_path, {**files, 50: ("/data/x", "0100001", 32)})
    ticks = iter(range(100000))
    # Each look at this clock takes longer than the whole budget.
    probe = Disk(str(tmp_path), home="/home", statvfs=lambda _: SPACE, clock=lambda: float(next(ticks)))

    seen = [len(probe.read(tree)["list"]) for _ in range(60)]

    assert seen[0] == 1 or seen[0] == 2
    assert seen[-1] == 2
    assert ticks.__next__() > 60


def test_a_real_child(start, tmp_path):
    """The file that a real child writes is found, with the space of its file system."""
    target = tmp_path / "out.bin"
    process = start(f"f = open({str(target)!r}, 'wb'); print(1, flush=True); import time; time.sleep(600)")

    reading = Disk(home=str(tmp_path), clock=lambda: 0.0).read(Tree(process.pid, [process.pid]))

    space = os.statvfs(tmp_path)
    mounts = {row["mount"]: row for row in reading["list"]}
    row = next(row for row in mounts.values() if row["path"] == str(target))
    assert space.f_blocks * space.f_frsize == row["total"]
    assert "/dev/shm" not in mounts


def test_a_command_that_is_gone(tmp_path):
    """A command that has just ended writes nowhere, and that is no failure."""
    assert Disk(str(tmp_path), clock=lambda: 0.0).read(Tree(1, [1])) == {}
