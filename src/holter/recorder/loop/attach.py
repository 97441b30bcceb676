"""A look at a process that was not started under Holter: probes and stacks for a few seconds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from holter.errors import NoSuchProcess, NotPermitted
from holter.probes import probes_here
from holter.probes.probe import Tree
from holter.record.privacy import mask_command
from holter.record.writer import RecordWriter
from holter.recorder.hang.detector import BUSY_CORES, MOVING_BYTES
from holter.recorder.hang.waiting import waiting
from holter.recorder.launch.run_facts import facts_of_run
from holter.recorder.loop.processes import command_of, is_python, lives
from holter.recorder.loop.sampler import Sampler
from holter.recorder.platform import here
from holter.recorder.stacks import take

SECONDS = 5.0
_OTHERS = 8  # further Python processes of the tree whose stacks are read


def attach(pid: int, folder: Path, seconds: float = SECONDS) -> None:
    """Watch `pid` for a few seconds and write what was seen as a record."""
    command = command_of(pid)
    writer = RecordWriter(folder)
    writer.meta({**facts_of_run(folder, mask_command(command) or [f"pid {pid}"]), "attached": pid})
    begun = time.monotonic()
    sampler = Sampler(probes_here())
    finder = here("tree").TreeFinder(pid)
    target, others = _choose(pid, finder.find())
    for one in (target, *others):
        words = command_of(one)
        writer.event("process", pid=one, command=mask_command(words)[:60], python=is_python(one, words))
    first = _stacks(target, writer, 1, _role(target))
    for one in others:
        _stacks(one, writer, 1, _role(one))
    samples: list[dict[str, Any]] = []
    while (now := time.monotonic()) - begun < seconds and lives(pid):
        sample, missing = sampler.sample(Tree(pid, finder.find()), now)
        samples.append({"k": "sample", "t": time.time(), "m": now, **sample})
        writer.timeline(samples[-1:])
        for fact in missing:
            writer.event("missing", **fact)
        time.sleep(max(0.0, 0.5 - (time.monotonic() - now)))
    if not lives(pid):
        writer.event("end", exit_code=None, signal=None, because="the process ended while it was being watched")
        return
    second = _stacks(target, writer, 2, _role(target))
    waits = waiting(target)
    cpu, moved = _rates(samples)
    same = take.same_place(first, second) if first and second else not first and not second
    if same and cpu < BUSY_CORES and moved < MOVING_BYTES and waits.get("state", "S") in ("S", "D"):
        spot = take.place_of(second) or {}
        writer.event(
            "stall",
            pid=target,
            since=begun,
            phase="attached",
            step=0,
            limit=seconds,
            learned="the time for which Holter watched",
            cpu=round(cpu, 4),
            same_place=bool(second),
            code=spot.get("code", ""),
            **{name: spot[name] for name in ("file", "line", "function") if name in spot},
            **waits,
        )
    writer.event("detached", pid=pid, cpu=round(cpu, 4))
    writer.close()


def check(pid: int) -> None:
    """Refuse what can't be watched, with the reason."""
    if pid <= 0:
        raise NoSuchProcess(f"{pid} is not a process id")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NoSuchProcess(f"there is no process {pid}", "It has ended, or the number is wrong: see ps") from None
    except PermissionError:
        raise NotPermitted(f"process {pid} belongs to another user", f"Try: sudo holter attach {pid}") from None
    if not lives(pid):
        raise NoSuchProcess(f"process {pid} has ended, and only waits for its parent to collect it (a zombie)")


def _choose(pid: int, tree: list[int]) -> tuple[int, list[int]]:
    """Whose stacks to read: the process itself, or the Python under a shell or launcher; and its other Pythons."""
    pythons = [one for one in tree if is_python(one, command_of(one))]
    if is_python(pid, command_of(pid)) or not pythons:
        target = pid
    else:
        # Of several the one that was started first is the one that the others belong to.
        target = pythons[0]
    return target, [one for one in pythons if one != target][:_OTHERS]


def _role(pid: int) -> str:
    """A DataLoader names its workers; whoever else is asked about stands for the trainer."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "trainer"
    return "worker" if name == "pt_data_worker" else "trainer"


def _stacks(pid: int, writer: RecordWriter, look: int, role: str) -> list[dict[str, Any]]:
    if not is_python(pid, command_of(pid)):
        writer.event("stacks", pid=pid, role="other", reason="attach", round=look, via="py-spy", failed="not Python")
        return []
    threads, because = take.from_py_spy(pid)
    found: dict[str, Any] = {"threads": threads} if threads else {"failed": because}
    writer.event("stacks", pid=pid, role=role, reason="attach", round=look, via="py-spy", **found)
    return threads


def _rates(samples: list[dict[str, Any]]) -> tuple[float, float]:
    """Cores used and bytes moved per second over the samples."""
    read = [(s["m"], s["processes"]) for s in samples if "processes" in s]
    if len(read) < 2:
        return 0.0, 0.0
    (begun, first), (ended, last) = read[0], read[-1]
    span = max(ended - begun, 1e-3)

    def moved(fields: dict[str, Any]) -> float:
        return float(fields.get("read_bytes", 0) + fields.get("write_bytes", 0))

    return (last["cpu_s"] - first["cpu_s"]) / span, (moved(last) - moved(first)) / span
