"""The figures of a run that moves pages, in words."""

from __future__ import annotations

from holter.diagnosis.core.evidence import wall
from holter.diagnosis.core.fields import number, whole
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.paging import SWAP, Paging
from holter.diagnosis.memory.paging_line import stood_on
from holter.diagnosis.memory.unified import pressure_evidence
from holter.finding import Evidence
from holter.units import duration, share, size


def price(found: Paging) -> str:
    """Say what it cost, as the end of a sentence."""
    said = ""
    if found.slowdown is not None and found.slowdown >= 1.5 and found.slow and found.quick:
        said = f"; steps took {duration(found.slow)} instead of {duration(found.quick)}"
    if found.computing is not None and found.computing < 0.7 and not found.unified:
        said += f"; {found.computing:.2f} of a core was at the training's own work"
    elif (found.waited or 0.0) >= 0.03:
        said += f"; it waited for memory {share(found.waited or 0.0)} of the time"
    return said


def swapped_out(record: RecordLike, found: Paging) -> float:
    """Give how much of the run lay in swap, at the most, while pages moved."""
    top = 0.0
    for probe, field in (("cgroup", "swap_usage"), ("processes", "swap"), ("apple", "swap_used")):
        for m, reading in record.samples(probe):
            if found.begin <= m <= found.end:
                top = max(top, number(reading, field) or 0.0)
        if top:
            break
    return top


def others_hold(record: RecordLike) -> float:
    """Give what other programs hold, where it is the machine's own memory that ran short and they hold much of it."""
    if any(number(reading, "limit") for _, reading in record.samples("cgroup")[-3:]):
        return 0.0
    for _, reading in reversed(record.samples("memory")):
        total, free = number(reading, "total"), number(reading, "available")
        if total and free is not None:
            run = record.samples("apple")[-1:] or record.samples("processes")[-1:]
            own = next((number(r, "footprint") or number(r, "rss") or 0.0 for _, r in run), 0.0)
            others = total - free - own
            return others if others > 0.25 * total else 0.0
    return 0.0


def evidence_of(record: RecordLike, found: Paging) -> tuple[Evidence, ...]:
    """Give the proof: what moved, what waited, what stood still, and the line it was met on."""
    since = wall(record, found.begin)
    what = "swapped in" if found.kind == SWAP else "read again"
    shown = [Evidence(what, f"{size(found.rate)} per second for {duration(found.seconds)}", since)]
    out = swapped_out(record, found)
    if out:
        shown.append(Evidence("in swap", size(out)))
    if found.waited is not None:
        shown.append(
            Evidence("waiting for memory", f"{share(found.waited)} of the time (the kernel's pressure figure)")
        )
    if found.computing is not None:
        kernel = f", {found.in_kernel:.2f} in the kernel" if found.in_kernel is not None else ""
        shown.append(Evidence("CPU", f"{found.computing:.2f} cores at the training's own work{kernel}"))
    hits = [value for _, r in record.samples("cgroup") if (value := whole(r, "at_limit")) is not None]
    if hits and hits[-1] > hits[0]:
        limit = next((number(r, "limit") for _, r in reversed(record.samples("cgroup")) if number(r, "limit")), None)
        of = f" of {size(limit)}" if limit else ""
        shown.append(Evidence("limit", f"the container's limit{of} was hit {hits[-1] - hits[0]:,} times"))
    shown += pressure_evidence(record)
    stood = stood_on(record)
    if stood is not None:
        at = f"{stood.frame.short} in {stood.times} of {stood.looks} looks"
        shown.append(Evidence("waits at", f"{at}    {stood.frame.code}".strip()))
    return tuple(shown)
