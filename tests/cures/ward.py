"""A patient's course: it falls ill under Holter, the verdict's first cure is applied, and it runs again."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cures.apply import applied, is_diff
from tests.endings.ward import Case
from tests.needs import needs
from tests.score.control_group import ControlGroup, make_group, remove_group
from tests.score.errors import CannotBeMade

PATIENTS = Path(__file__).parent / "patients"
NAMES = sorted(path.stem for path in PATIENTS.glob("*.py") if "." not in path.stem)
# Hangs are seen by how long a step usually takes: such patients wait, and others may run meanwhile.
_STOPPED_WHEN_IT_HANGS = ("--on-hang", "stop")
_GROUP_IS_MADE = threading.Lock()


@dataclass
class Course:
    """What became of one patient: ill, the cure, and well again."""

    sick: Case
    cure: dict[str, Any] = field(default_factory=dict)
    cured: Case | None = None
    why_not: str = ""

    @property
    def cause(self) -> str:
        cause: str = self.sick.first()["cause"]
        return cause

    def told_again(self) -> list[dict[str, Any]]:
        """Give what is said of the cured run for the same cause, but for guesses."""
        assert self.cured is not None
        found = self.cured.verdict()["findings"]
        return [one for one in found if one["cause"] == self.cause and one["grade"] != "hypothesis"]


def settings(name: str) -> dict[str, str]:
    """Give what the first lines of a patient say: its cause, and what it runs under."""
    lines = (PATIENTS / f"{name}.py").read_text().splitlines()
    said = [line[2:].partition(": ") for line in lines if line.startswith("# ") and ": " in line]
    return {key: value for key, _, value in said}


def course_of(name: str, folder: Path) -> Course:
    """Run a patient, apply the first cure of its first finding, and run it again under the same limits."""
    settings_of_run = settings(name)
    needs(
        *settings_of_run.get("needs", "torch" if "torch" in (PATIENTS / f"{name}.py").read_text() else "holter").split()
    )
    script = (PATIENTS / f"{name}.py").read_text()
    course = Course(_run(settings_of_run, script, folder / "sick", first=True))
    try:
        cures = course.sick.first().get("cures") or []
        if not cures:
            course.why_not = "there is no cure"
            return course
        course.cure = cures[0]
        by_hand = PATIENTS / f"{name}.cured.py"
        if is_diff(course.cure["how"]):
            script = applied(course.cure["how"], script)
        elif by_hand.exists():
            script = by_hand.read_text()
        elif "shm" not in settings_of_run:
            course.why_not = "the cure is words alone, and nobody has written what they say"
            return course
    except ValueError as error:
        course.why_not = str(error)
        return course
    course.cured = _run(settings_of_run, script, folder / "cured", first=False)
    return course


def pasted(
    course: Course, command: str, folder: Path, settings_of_run: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of a cure as it was printed, under the patient's limits."""
    words = shlex.split(command)
    assert words[0] == "holter"
    with _Limits(settings_of_run, folder) as limits:
        return subprocess.run(
            [*limits.prefix(first=True), sys.executable, "-m", *words], env=course.sick.holter.environ(),
            cwd=course.sick.holter.folder, preexec_fn=limits.join, capture_output=True, timeout=600, check=False,
        )  # fmt: skip


def _run(settings_of_run: dict[str, str], script: str, folder: Path, *, first: bool) -> Case:
    case = Case(folder, script)
    with _Limits(settings_of_run, folder) as limits:
        words = [sys.executable, case.script, *limits.arguments]
        case.start(words, _STOPPED_WHEN_IT_HANGS, limits.prefix(first=first), limits.join)
        case.finish()
    return case


class _Limits:
    """The kernel's limits for one run, as the patient's first lines ask for them; skips where they can't be had."""

    def __init__(self, settings_of_run: dict[str, str], folder: Path) -> None:
        self.settings = settings_of_run
        self.disk = folder / "disk"
        self.group: ControlGroup | None = None
        self.arguments: list[str] = []

    def __enter__(self) -> _Limits:
        asked = {"memory", "pids", "disk", "shm"} & set(self.settings)
        if asked and os.geteuid() != 0:
            pytest.skip(f"a limit of {', '.join(asked)} needs root")
        if "memory" in self.settings:
            limit = str(int(self.settings["memory"].split()[0]) * 1_000_000)
            one = [("memory.limit_in_bytes", limit), ("memory.memsw.limit_in_bytes", limit)]
            self._made("memory", [*one, ("memory.max", limit), ("memory.swap.max", "0")])
        if "pids" in self.settings:
            self._made("pids", [("pids.max", self.settings["pids"])])
        if "disk" in self.settings:
            self.disk.mkdir(parents=True)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={self.settings['disk']}", "tmpfs", str(self.disk)]
            done = subprocess.run(mount, capture_output=True, check=False)
            if done.returncode:
                pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
            self.arguments = [str(self.disk)]
        if "shm" in self.settings and os.system("unshare -m true 2>/dev/null") != 0:
            pytest.skip("no mount namespace of its own can be had here")
        return self

    def __exit__(self, *_: object) -> None:
        if self.group is not None:
            remove_group(self.group)
        if "disk" in self.settings:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)

    def _made(self, controller: str, files: list[tuple[str, str]]) -> None:
        try:
            with _GROUP_IS_MADE:
                self.group = make_group(f"holter-cures-{os.getpid()}-{threading.get_ident()}", {controller: files})
        except CannotBeMade as error:
            pytest.skip(str(error))

    def prefix(self, *, first: bool) -> list[str]:
        """Give /dev/shm the first size, and after the cure the second."""
        if "shm" not in self.settings:
            return []
        size = self.settings["shm"].split(", ")[0 if first else 1]
        small = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
        return ["unshare", "-m", "sh", "-c", small, "sh"]

    @property
    def join(self) -> Callable[[], None]:
        """What the new process does before it becomes the run."""
        folders = self.group.folders if self.group is not None else ()
        files = self.settings.get("files")

        def do() -> None:
            for folder in folders:
                (folder / "cgroup.procs").write_text(str(os.getpid()))
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))

        return do
