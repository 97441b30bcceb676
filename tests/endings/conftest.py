"""Limits of the kernel's own for the runs under test: memory, disks. Without root they skip, and say so."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endings.ward import Case
from tests.score.control_group import ControlGroup, make_group, remove_group
from tests.score.errors import CannotBeMade

Join = Callable[[], None]


def _make_group(controller: str, files: dict[str, str]) -> ControlGroup:
    """A new control group with its limits written, of version 1 or 2; skips where that can't be done."""
    if os.geteuid() != 0:
        pytest.skip(f"making a {controller} control group needs root")
    try:
        return make_group(f"holter-test-{os.getpid()}-{time.monotonic_ns()}", {controller: list(files.items())})
    except CannotBeMade as error:
        pytest.skip(str(error))


def _joining(group: ControlGroup) -> Join:
    return lambda: [(folder / "cgroup.procs").write_text(str(os.getpid())) for folder in group.folders] and None


@pytest.fixture(scope="module")
def memory_cgroup() -> Iterator[Callable[[int], Join]]:
    """Give, for a limit in bytes, what puts a new process under it."""
    made: list[ControlGroup] = []

    def make(limit: int) -> Join:
        value = str(limit)
        # The files of version 1, then those of version 2; swap would only delay what the test is about.
        one = {"memory.limit_in_bytes": value, "memory.memsw.limit_in_bytes": value}
        group = _make_group("memory", {**one, "memory.max": value, "memory.swap.max": "0"})
        made.append(group)
        return _joining(group)

    yield make
    for group in made:
        remove_group(group)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Callable[..., Case]]:
    """Make a run of a script; what it leaves behind is ended."""
    made: list[Case] = []

    def make(text: str, name: str = "train.py") -> Case:
        made.append(Case(tmp_path / f"case-{len(made)}", text, name))
        return made[-1]

    yield make
    for one in made:
        one.holter.close()
