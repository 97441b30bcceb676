"""What a patient finds around it: a small disk, swap, a small /dev/shm, other programs; all is taken away again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.score.control_group import MB, ControlGroup, control_group
from tests.score.errors import CannotBeMade
from tests.score.patient import Patient


class Surroundings:
    """The words to put before a command so that it starts within the limits, and what it is to have in its environ."""

    def __init__(self, patient: Patient, group: ControlGroup | None, disk: Path | None) -> None:
        self.patient = patient
        self.group = group
        self.disk = disk

    @property
    def environ(self) -> dict[str, str]:
        return {"PATIENT_DISK": str(self.disk)} if self.disk else {}

    @property
    def prefix(self) -> list[str]:
        """A shell that takes the limits upon itself and then becomes the command."""
        words = [self.group.join_words()] if self.group else []
        if self.patient.nofile:
            words.append(f"ulimit -n {self.patient.nofile}")
        if self.patient.shm_mb:
            words.append(f"mount -t tmpfs -o size={self.patient.shm_mb}m tmpfs /dev/shm")
        shell = ["sh", "-c", " && ".join([*words, 'exec "$@"']).replace("; ", " && "), "sh"]
        return ["unshare", "--mount", "--propagation", "private", *shell] if self.patient.shm_mb else shell


@contextmanager
def surroundings(patient: Patient, folder: Path) -> Iterator[Surroundings]:
    """Make what the sidecar asks for, in and below a folder."""
    if patient.shm_mb and os.geteuid() != 0:
        raise CannotBeMade("a small /dev/shm needs root")
    with ExitStack() as stack:
        disk = stack.enter_context(_disk(patient, folder)) if patient.disk_mb else None
        device = _device_of(disk) if disk and patient.disk_read_mbps else None
        if patient.swap_mb:
            stack.enter_context(_swap(patient.swap_mb, folder))
        group = stack.enter_context(control_group(patient, device))
        stack.enter_context(_load(patient.nice_load))
        yield Surroundings(patient, group, disk)


def remount(place: Path) -> None:
    """Mount a disk anew, so that nothing of it is still in memory."""
    source = _output("findmnt", "--noheadings", "--output", "SOURCE", str(place))
    _do("umount", str(place))
    _do("mount", source, str(place))


@contextmanager
def _disk(patient: Patient, folder: Path) -> Iterator[Path]:
    """A small file system: in memory, or a real one in a file where reading it is to be slow."""
    if os.geteuid() != 0:
        raise CannotBeMade("mounting a small disk needs root")
    place, image, loop = folder / "disk", folder / "disk.img", ""
    place.mkdir()
    try:
        if patient.disk_read_mbps:
            with image.open("wb") as file:
                file.truncate((patient.disk_mb or 0) * MB)
            _do("mkfs.ext4", "-q", "-F", str(image))
            loop = _output("losetup", "--find", "--show", str(image))
            _do("mount", loop, str(place))
        else:
            _do("mount", "-t", "tmpfs", "-o", f"size={patient.disk_mb}m", "tmpfs", str(place))
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
        if loop:
            subprocess.run(["losetup", "--detach", loop], check=False, capture_output=True)
        image.unlink(missing_ok=True)


@contextmanager
def _swap(size_mb: int, folder: Path) -> Iterator[None]:
    if os.geteuid() != 0:
        raise CannotBeMade("swap needs root")
    path = folder / "swap"
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, (size_mb + 1) * MB)
        path.chmod(0o600)
        _do("mkswap", str(path))
        _do("swapon", str(path))
        yield
    finally:
        subprocess.run(["swapoff", str(path)], check=False, capture_output=True)
        path.unlink(missing_ok=True)


@contextmanager
def _load(count: int) -> Iterator[None]:
    """Other programs that are busy all the time."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _device_of(place: Path) -> str:
    number = place.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _output(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotBeMade(f"{words[0]} is not installed") from None
    if done.returncode:
        raise CannotBeMade(f"{words[0]} can't be done here: {done.stderr.strip()}")
    return done.stdout.strip()


def _do(*words: str) -> None:
    _output(*words)
