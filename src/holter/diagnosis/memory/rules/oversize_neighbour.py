"""Another process holds the memory that this run asked for.

What it sees: memory that ran out, on a GPU or on the host, while processes that are none of the run's held much of it,
and what the run asked for would have fitted without them.
Why it matters: a smaller batch only hides it; the next run meets the same stranger, or one's own forgotten process.
May be confused with: a step that does not fit even into the whole device; a limit that the process set itself.
How sure: established when the driver or PyTorch's own message counts the others' memory; supported where it is only
the resident sizes of other programs.
Cure: end or wait for that process, or take another device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import message_of, raised_at_end
from holter.diagnosis.memory.exhaustion import Exhaustion, exhaustion_of
from holter.diagnosis.memory.pool import size_in
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import Gpu, GpuProcess, MachineMemory, Neighbour, Neighbours, Nvidia, Processes
from holter.units import size

CAUSE = "oversize.neighbour"

_MUCH_OF_DEVICE = 0.1  # of a device: less is a desktop, or another small process
_MUCH_OF_HOST = 0.3  # of the machine: every one of them runs something else besides
_OTHERS = re.compile(r"Process (\d{1,10}) has ([\d.]{1,20}) ([KMGT]iB) memory in use")
_OWN = re.compile(r"this process has ([\d.]{1,20}) ([KMGT]iB) memory in use")
_OWN_LIMIT = " allowed; "  # PyTorch's words under set_per_process_memory_fraction
_KERNEL = re.compile(r"ipykernel|jupyter", re.IGNORECASE)


@dataclass(frozen=True)
class Held:
    """What others hold: in all, of how much, by whom, and how it is known."""

    others: float
    total: float
    whom: tuple[GpuProcess | Neighbour, ...]
    grade: Grade
    on_device: bool
    since_before: bool = False


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say who holds how much of what there is."""
    found = exhaustion_of(record, ending)
    if found is None or found.shape in ("leak", "copies"):
        return None
    held = _on_device(record, found) if found.on_device else _on_host(record, found)
    if held is None:
        return None
    where = "the GPU's" if held.on_device else "the machine's"
    whom = held.whom[0] if held.whom else None
    since = ", since before this run began" if held.since_before else ""
    who = f": {_named(whom)}{since}" if whom is not None else ""
    claim = (
        f"another process holds {size(held.others)} of {where} {size(held.total)}{who}; "
        f"{size(held.total - held.others)} were left for this run"
    )
    evidence = [Evidence("held by others", f"{_named(one)}: {size(_bytes(one))}") for one in held.whom[:4]]
    return Finding(CAUSE, held.grade, claim, (*evidence, *found.evidence), found.culprit, _cures(record, held))


def _on_device(record: RecordLike, found: Exhaustion) -> Held | None:
    message = message_of(raised_at_end(record))
    if _OWN_LIMIT in message:
        return None
    gpu, first = _gpu(record, last=True), _gpu(record, last=False)
    others = {int(pid): size_in(value, unit) for pid, value, unit in _OTHERS.findall(message)}
    own = next((size_in(value, unit) for value, unit in _OWN.findall(message)), None)
    strangers = tuple(one for one in gpu.processes if one.name or one.pid in others) if gpu is not None else ()
    if not strangers:
        strangers = tuple(GpuProcess.parse({"pid": pid, "used": held}) for pid, held in others.items())
    own = gpu.tree if own is None and gpu is not None else own
    total = gpu.total if gpu is not None else found.curve.limit if found.curve is not None else None
    by_driver = gpu.used - gpu.tree if gpu is not None and gpu.used is not None and gpu.tree is not None else 0.0
    beside = sum(others.values()) or by_driver
    if not total or own is None or beside < _MUCH_OF_DEVICE * total or own + (found.asked or 0.0) > total:
        return None
    known = {one.pid for one in first.processes} if first is not None else set()
    before = bool(strangers) and strangers[0].pid in known
    strangers = tuple(sorted(strangers, key=lambda one: -(one.used or 0.0)))
    return Held(beside, total, strangers, "established", True, before)


def _gpu(record: RecordLike, *, last: bool) -> Gpu | None:
    """Give the GPU that the run holds memory on, as it was first or last read; the only one where it holds none yet."""
    readings = record.readings(Nvidia)
    for _, reading in readings[::-1] if last else readings:
        mine = [row for row in reading.rows if (row.tree or 0.0) > 0] or (
            reading.rows if len(reading.rows) == 1 else ()
        )
        if mine:
            return max(mine, key=lambda row: row.used or 0.0)
    return None


def _on_host(record: RecordLike, found: Exhaustion) -> Held | None:
    if found.curve is None or not found.curve.kind.startswith("ram"):
        return None
    total = next((r.total for _, r in record.readings(MachineMemory)[::-1] if r.total), None)
    large = next((reading.rows for _, reading in record.readings(Neighbours)[::-1]), ())
    others = min(sum(row.rss or 0.0 for row in large), total or float("inf"))  # pages they share count in each
    own = max((r.rss or 0.0 for _, r in record.readings(Processes)), default=0.0)
    if not total or others < _MUCH_OF_HOST * total or own + (found.asked or 0.0) > total:
        return None
    before = bool(large) and (large[0].started or record.facts.started or 0.0) < (record.facts.started or 0.0)
    return Held(others, total, tuple(large), "supported", False, before)


def _bytes(one: GpuProcess | Neighbour) -> float:
    return (one.used if isinstance(one, GpuProcess) else one.rss) or 0.0


def _named(one: GpuProcess | Neighbour) -> str:
    words = [word for word in (one.command or one.name, f"user {one.user}" if one.user else "") if word]
    return f"pid {one.pid}" + (f" ({', '.join(words)})" if words else "")


def _cures(record: RecordLike, held: Held) -> tuple[Cure, ...]:
    one = held.whom[0] if held.whom else None
    cures = []
    if one is not None and _KERNEL.search(one.command):
        cures.append(Cure("it is a notebook: restart its kernel, which gives the memory back"))
    elif one is not None and _same_script(record, one.command):
        cures.append(Cure("it looks like an earlier run of this script: end it", f"kill {one.pid}"))
    elif one is not None:
        cures.append(Cure("end that process if it is yours, or wait for it", f"kill {one.pid}"))
    free = _free_gpu(record) if held.on_device else None
    if free is not None:
        cures.append(Cure("or take the GPU that is free", f"CUDA_VISIBLE_DEVICES={free} holter run -- COMMAND"))
    cures.append(Cure("or need less of it: a smaller batch with gradient accumulation", "", "equivalent"))
    return tuple(cures)


def _same_script(record: RecordLike, command: str) -> bool:
    scripts = {word.rpartition("/")[2] for word in record.facts.words if word.endswith(".py")}
    return any(word.rpartition("/")[2] in scripts for word in command.split())


def _free_gpu(record: RecordLike) -> int | None:
    """Give the number of another GPU that nobody holds much of."""
    rows = next((reading.rows for _, reading in record.readings(Nvidia)[::-1]), ())
    free = [row for row in rows if row.total and (row.used or 0.0) < _MUCH_OF_DEVICE * row.total and not row.tree]
    return free[0].index if free and len(rows) > 1 else None
