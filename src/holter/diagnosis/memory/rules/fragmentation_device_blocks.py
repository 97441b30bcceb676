"""Enough device memory is free, but no block of it is large enough.

What it sees: an out-of-memory error of a device whose allocator had more in reserve than was asked for: PyTorch's own
words ("reserved by PyTorch but unallocated"), TensorFlow's dump of its pool (InUse against Limit), and the figures
that were read before it (reserved against allocated, allocations that had to be tried again).
Why it matters: a smaller batch only moves the hour; what is free lies in pieces between what is in use.
May be confused with: a step that does not fit at all, where next to nothing is in reserve; a cache that the allocator
would have given back (it does so before it raises).
How sure: established when the reserve alone was larger than what was asked for; supported when reserve and free memory
together were; a hypothesis where a run that goes on had to try allocations again.
Cure: expandable segments or the asynchronous allocator; fixed shapes; reuse of buffers.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_of, raised_at_end
from holter.diagnosis.memory.pool import Pool, pool_of
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.units import share, size

CAUSE = "fragmentation"

_LEAST = 0.1  # of the pool: less is the rounding of every allocator


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Set what was asked for against what lay in reserve."""
    if ending.kind not in ("exception", "crashed", "stopped-early"):
        return None
    raised = raised_at_end(record)
    pool = pool_of(record, raised)
    if pool is None or pool.asked is None or pool.reserve < _LEAST * (pool.reserve + pool.allocated):
        return None
    if pool.asked > pool.reserve + pool.free:
        return None
    grade: Grade = "established" if pool.asked <= pool.reserve else "supported"
    claim = (
        f"{size(pool.asked)} were asked for and refused, while {size(pool.reserve)} lay free in the framework's own "
        f"pool, in pieces: {share(pool.reserve / (pool.reserve + pool.allocated))} of what it holds"
    )
    evidence = [Evidence("pool", f"{size(pool.allocated)} in use, {size(pool.reserve)} in reserve, {pool.words}")]
    if pool.retries:
        evidence.append(Evidence("allocations tried again", f"{pool.retries:,}"))
    if raised is not None:
        evidence.append(Evidence("exception", raised.headline[:400], raised.when))
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit_of(raised), _cures(pool))


def _cures(pool: Pool) -> tuple[Cure, ...]:
    if pool.framework == "tensorflow":
        first = Cure("the asynchronous allocator", "TF_GPU_ALLOCATOR=cuda_malloc_async holter run -- COMMAND")
    else:
        setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        first = Cure("segments that can grow", f"{setting} holter run -- COMMAND")
    return (
        first,
        Cure("fixed shapes: pad or bucket batches to a few lengths, so that freed blocks fit again", "", "equivalent"),
        Cure("make large buffers once, before the loop, and reuse them"),
    )
