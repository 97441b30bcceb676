"""The kernel's control groups, version 1 or 2: one per patient, with its limits, and nothing left of it afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.score.errors import CannotBeMade
from tests.score.patient import Patient

ROOT = Path("/sys/fs/cgroup")
MB = 1 << 20
_PERIOD = 100_000  # microseconds, the kernel's own default


class ControlGroup:
    """The folders that a patient's processes are put into."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def join_words(self) -> str:
        """Words for a shell that puts itself into the group."""
        return "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in self.folders)

    def number(self, *names: str) -> int | None:
        """The first of the named files that is there and holds a number."""
        for path in (folder / name for folder in self.folders for name in names):
            try:
                return int(path.read_text())
            except (OSError, ValueError):
                continue
        return None

    @property
    def peak(self) -> int | None:
        return self.number("memory.max_usage_in_bytes", "memory.peak")

    @property
    def oom_kills(self) -> int:
        for path in (folder / name for folder in self.folders for name in ("memory.oom_control", "memory.events")):
            try:
                words = dict(line.split() for line in path.read_text().splitlines())
            except (OSError, ValueError):
                continue
            return int(words.get("oom_kill", 0))
        return 0

    def end_all(self) -> None:
        """End whatever is still in it: only the patient's own processes are."""
        for folder in filter(Path.exists, self.folders):
            for word in (folder / "cgroup.procs").read_text().split():
                try:
                    os.kill(int(word), signal.SIGKILL)
                except ProcessLookupError:
                    pass


@contextmanager
def control_group(patient: Patient, device: str | None) -> Iterator[ControlGroup | None]:
    """Make the group that the sidecar asks for; `device` is the number of the disk whose reading is slowed."""
    wanted = _limits(patient, device)
    if os.geteuid() != 0:
        if wanted:
            raise CannotBeMade(f"a control group for {' and '.join(wanted)} needs root")
        yield None
        return
    group = make_group(f"holter-score-{os.getpid()}-{patient.name}", wanted)
    try:
        yield group
    finally:
        remove_group(group)


def _limits(patient: Patient, device: str | None) -> dict[str, list[tuple[str, str]]]:
    """For each controller the files to write, those of version 1 and then those of version 2."""
    wanted: dict[str, list[tuple[str, str]]] = {}
    if patient.memory_mb:
        limit, swap = patient.memory_mb * MB, (patient.swap_mb or 0) * MB
        wanted["memory"] = [
            ("memory.limit_in_bytes", str(limit)),
            ("memory.memsw.limit_in_bytes", str(limit + swap)),
            ("memory.max", str(limit)),
            ("memory.swap.max", str(swap)),
        ]
    if patient.cpu_quota:
        share = int(patient.cpu_quota * _PERIOD)
        wanted["cpu"] = [("cpu.cfs_quota_us", str(share)), ("cpu.max", f"{share} {_PERIOD}")]
    if patient.pids:
        wanted["pids"] = [("pids.max", str(patient.pids))]
    if device and patient.disk_read_mbps:
        speed = int(patient.disk_read_mbps * MB)
        wanted["blkio"] = [
            ("blkio.throttle.read_bps_device", f"{device} {speed}"),
            ("io.max", f"{device} rbps={speed}"),
        ]
    return wanted


def make_group(name: str, wanted: dict[str, list[tuple[str, str]]]) -> ControlGroup:
    """Make a group with its limits written: for each controller the files, those that this version has."""
    group = ControlGroup([])
    unified = (ROOT / "cgroup.controllers").exists()
    # A group without a limit is made too: whatever a patient leaves behind is found in it.
    controllers = ["io" if unified and one == "blkio" else one for one in (wanted or {"pids": []})]
    try:
        if unified:
            for controller in controllers:
                (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
        for base in [ROOT] if unified else [ROOT / controller for controller in controllers]:
            folder = base / name
            folder.mkdir()
            group.folders.append(folder)
        for folder in group.folders:
            for file, value in (pair for pairs in wanted.values() for pair in pairs):
                if (folder / file).exists():
                    (folder / file).write_text(value)
    except OSError as error:
        remove_group(group)
        raise CannotBeMade(f"no control group for {' and '.join(controllers)} can be made here: {error}") from None
    return group


def remove_group(group: ControlGroup) -> None:
    """End what is in the group, which only we put there, and take it away."""
    for folder in group.folders:
        for _ in range(200):
            try:
                group.end_all()
                folder.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.05)
