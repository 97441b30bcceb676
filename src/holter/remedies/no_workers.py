"""Data workers that hang, that copy the dataset, or that find no shared memory: the trainer loads its data itself."""

from __future__ import annotations

from holter.record import environment
from holter.remedies.remedy import Remedy

CAUSES = ("hang.worker", "leak.worker-copy", "resource.shared-memory")


def prescribe(tried: int) -> Remedy | None:
    """`HOLTER_WORKERS=0`, once: there is no fewer than none."""
    if tried:
        return None
    return Remedy(
        "no-workers",
        "data are loaded without worker processes (num_workers=0)",
        "equivalent",
        "random numbers for the data are drawn in the trainer",
        {environment.WORKERS: "0"},
        from_start=True,
        read_by=("torch",),
    )
