"""A batch that does not fit where it can't be split in place: the loader hands it out in chunks, with one update.

An error for lack of memory has gone through the reflex that splits in place; what is left is outside of the model's
call, in the script's own loss or metric. Two parts, then eight, then thirty-two: each is a start from the beginning
or from the last state, and the ledger allows three that come no further.
"""

from __future__ import annotations

from holter.record import environment
from holter.remedies.remedy import Remedy

_PARTS = (2, 8, 32)


def prescribe(tried: int) -> Remedy | None:
    """`HOLTER_LOADER` is read by the reflex at the loader."""
    if tried >= len(_PARTS):
        return None
    parts = _PARTS[tried]
    return Remedy(
        "split-loader",
        f"the loader hands out each batch in {parts} chunks, with one update for all",
        "equivalent",
        "the loop sees an iteration for each chunk",
        {environment.LOADER: str(parts)},
        from_start=True,
        read_by=("torch",),
    )
