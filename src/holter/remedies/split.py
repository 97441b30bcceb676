"""A batch that does not fit: the next attempt runs it in twice as many parts, with one update."""

from __future__ import annotations

from holter.record import environment
from holter.remedies.remedy import Remedy

CAUSES = ("oversize.batch", "oversize.spike")
_MAX_CHUNKS = 64


def prescribe(tried: int) -> Remedy | None:
    """Two parts, then four, then eight: `HOLTER_SPLIT` is read by the reflexes."""
    parts = 2 << tried
    if parts > _MAX_CHUNKS:
        return None
    return Remedy(
        "split",
        f"each batch is run in {parts} chunks with one update",
        "equivalent",
        "random numbers and batch statistics are drawn per chunk",
        {environment.SPLIT: str(parts)},
        from_start=True,
        read_by=("keras", "torch"),
    )
