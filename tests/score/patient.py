"""A patient: a small training script that is sick or healthy, and the truth about it in a sidecar file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

WARD = Path(__file__).resolve().parent.parent / "patients"

# These are judged by how time passes, so nothing of ours may run beside them.
TIMED = ("thrash", "input-bound", "recompile", "overhead", "cpu")


@dataclass(frozen=True)
class Patient:
    """A script and what its sidecar says of it; every limit is one that a user's machine could have."""

    name: str
    script: Path
    cause: str | None
    story: str
    framework: str
    ending: str | list[str]
    culprit: str | None = None
    culprit_also: list[str] = field(default_factory=list)
    also: list[str] = field(default_factory=list)
    aside: int = 0  # kept aside until the first run of this round
    in_tests: bool = False
    grows: bool = False
    seed: str | None = None
    command: list[str] = field(default_factory=lambda: ["{python}", "{script}"])
    prepare: list[str] = field(default_factory=list)
    memory_mb: int | None = None
    swap_mb: int | None = None
    disk_mb: int | None = None
    disk_read_mbps: float | None = None
    shm_mb: int | None = None
    pids: int | None = None
    nofile: int | None = None
    cpu_quota: float | None = None
    nice_load: int = 0
    gpu: bool = False
    timeout_s: float = 240.0
    on_hang: str | None = None
    interrupt_s: float | None = None
    hangup_s: float | None = None
    signal: dict[str, Any] | None = None

    @property
    def family(self) -> str:
        return (self.cause or "healthy").partition(".")[0]

    @property
    def endings(self) -> list[str]:
        return [self.ending] if isinstance(self.ending, str) else self.ending

    @property
    def timed(self) -> bool:
        """Whether the verdict hangs on the pace of the steps; healthy ones are timed, to give alarms no excuse."""
        return self.cause is None or self.family in TIMED or bool(self.nice_load)

    def on_a_busy_machine(self, times: float) -> Patient:
        """The same patient with all waiting times so many times as long."""
        signal = {**self.signal, "after_s": self.signal["after_s"] * times} if self.signal else None
        interrupt_s, hangup_s = (value and value * times for value in (self.interrupt_s, self.hangup_s))
        timeout_s = self.timeout_s * times
        return replace(self, timeout_s=timeout_s, interrupt_s=interrupt_s, hangup_s=hangup_s, signal=signal)

    @property
    def culprit_lines(self) -> list[int]:
        """The lines that may rightly be named: the culprit's own, and those that are as much to blame."""
        wanted = [text for text in (self.culprit, *self.culprit_also) if text]
        lines = self.script.read_text().splitlines()
        return [number for number, line in enumerate(lines, 1) if any(text in line for text in wanted)]


def load(sidecar: Path) -> Patient:
    """Read one sidecar; a word in it that means nothing is an error, not a silence."""
    told = json.loads(sidecar.read_text())
    known = {each.name for each in fields(Patient)}
    if unknown := set(told) - known:
        raise ValueError(f"{sidecar.name} holds words that mean nothing: {', '.join(sorted(unknown))}")
    return Patient(name=sidecar.stem, script=sidecar.with_suffix(".py"), **told)


def find(names: list[str] | None = None, ward: Path = WARD) -> list[Patient]:
    """All patients, or those whose names begin with one of the given ones."""
    found = [load(path) for path in sorted(ward.glob("*.json"))]
    if not names:
        return found
    wanted = [name.removesuffix(".py") for name in names]
    return [patient for patient in found if any(patient.name.startswith(name) for name in wanted)]
