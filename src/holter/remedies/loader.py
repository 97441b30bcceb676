"""A batch that does not fit where it can't be split in place: the loader hands it out in chunks, with one update.

An error for lack of memory has gone through the reflex that splits in place; what is left is outside of the model's
call, in the script's own loss or metric. Two chunks, then four, then sixteen: each is a start from the beginning
or from the last state, and the ledger allows three that come no further.
"""

from __future__ import annotations

from holter.record import environment
from holter.remedies.remedy import Remedy

_CHUNKS = (2, 4, 16)


def prescribe(tried: int) -> Remedy | None:
    """`HOLTER_LOADER` is read by the reflex at the loader."""
    if tried >= len(_CHUNKS):
        return None
    chunks = _CHUNKS[tried]
    return Remedy(
        "split-loader",
        f"the loader hands out each batch in {chunks} chunks, with one update for all",
        "equivalent",
        "the loop sees an iteration for each chunk",
        {environment.LOADER: str(chunks)},
        from_start=True,
        read_by=("torch",),
    )
