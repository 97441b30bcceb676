"""A working set a little larger than memory: pages go to swap and come back instead of steps being made.

What it sees: pages that come back from swap second after second while the run trains, the run's own major faults,
the share of time in which it waited for memory, the little that it computed meanwhile, and its steps against those
made while nothing was swapped. On Apple silicon: the system's pressure level, and swap that is read back.
Why it matters: nothing fails; the run is many times slower than it could be, and looks as if it hung.
May be confused with: old memory that was swapped out once and is never needed; a burst while something is loaded;
a hang, where nothing moves at all; a disk that is slow by itself.
How sure: established when pages came back for most of the training and the wait for them was measured or steps were
twice as long as without; supported when only the traffic is known. A leak that led there stands before it.
Cure: less memory, as for a batch that is too large; fewer workers; other programs elsewhere.
"""

from __future__ import annotations

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.next_commands import next_commands
from holter.diagnosis.memory.paging import SWAP, Paging, paging_of
from holter.diagnosis.memory.paging_words import evidence_of, line_of, others_hold, price, swapped_out
from holter.diagnosis.memory.unified import WATERMARK, why_no_error
from holter.finding import Cure, Ending, Finding, Grade
from holter.units import duration, size

CAUSE = "thrash.swap"

_HEAVY_BYTES_PER_S = 8e6  # bytes a second


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how much came back from swap, for how long, and what it cost."""
    found = paging_of(record)
    if found is None or found.kind != SWAP:
        return None
    out = swapped_out(record, found)
    held = f"{size(out)} of it lay in swap and " if out else ""
    claim = (
        f"the working set does not fit into memory: {held}{size(found.rate)} came back from there each second, "
        f"in {duration(found.seconds)} of {duration(found.of)} of training{price(found)}"
    )
    silent = why_no_error(record)
    evidence = (*evidence_of(record, found), *((silent,) if silent is not None else ()))
    cures = _cures(record, ending)
    if silent is not None:
        cures += (Cure("have PyTorch raise an error instead of sinking", f"{WATERMARK}=0.7 holter run -- COMMAND"),)
    cures += next_commands(record)
    return Finding(CAUSE, _grade(found), claim, evidence, line_of(record), cures)


def _grade(found: Paging) -> Grade:
    waited, idle = found.waited, found.computing is not None and found.computing < 0.3
    slower = found.slowdown or 1.0
    if found.unified:
        # The system's own word that it is pressed, and pages that move; how slow the steps became makes it sure.
        return "established" if slower >= 2 else "supported" if found.seconds >= 0.5 * found.of else "hypothesis"
    if slower >= 2 or (waited or 0.0) >= 0.1 or (idle and (waited is None or waited >= 0.04)):
        return "established"
    # Traffic alone, at a price that can hardly be measured, may be how a well-filled machine lives.
    dear = slower >= 1.5 or (waited or 0.0) >= 0.03 or found.rate >= _HEAVY_BYTES_PER_S
    return "supported" if dear else "hypothesis"


def _cures(record: RecordLike, ending: Ending) -> tuple[Cure, ...]:
    cures = [Cure("a smaller batch with gradient accumulation: half of it, and two steps added up", "", "equivalent")]
    if "worker" in roles(record).values():
        cures.append(
            Cure("fewer data workers: each holds its own batches and its own copy of what it touches", "", "equivalent")
        )
    others = others_hold(record)
    if others:
        cures.append(Cure(f"end other programs on this machine: they hold {size(others)}"))
    cures.append(
        Cure("keep less in memory: a smaller or half-precision table, data read from disk in order", "", "changed")
    )
    if ending.kind == "running":
        cures.append(Cure("or give it more memory: it makes progress, slowly"))
    return tuple(cures)
