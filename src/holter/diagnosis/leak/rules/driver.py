"""The framework's own figure is flat, and the driver's grows.

What it sees: the driver's memory for the process minus what the framework has allocated (Metal) or reserved (CUDA)
grows, while the framework's figure stands still.
Why it matters: nothing that the script can see grows, and the device or the machine runs out all the same. Known on
Metal with shapes that vary from step to step.
May be confused with: other programs on the same device (only this run's part is counted); a leak of tensors, which the
framework counts.
How sure: as sure as the trend: supported where memory ran out with it, else a hypothesis.
Cure: fixed shapes or padding, emptying the cache now and then, a newer release.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import leak_cause
from holter.finding import Cure, Ending, Evidence, Finding
from holter.units import size

CAUSE = "leak.driver"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how far the two figures went apart."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE or found.driver is None:
        return None
    driver = found.driver
    claim = driver.words if found.leak is None else f"{found.words}; {driver.words}"
    apart = f"{size(driver.driver)} against {size(driver.allocated)} of the framework's"
    empty = "torch.mps.empty_cache()" if driver.kind == "metal" else "torch.cuda.empty_cache()"
    cures = (
        Cure("give every batch the same shape: pad, or sort into a few lengths", "", "equivalent"),
        Cure(f"empty the framework's cache now and then, such as after each epoch: {empty}", "", "equivalent"),
        Cure("use a newer release of the framework and the system", "", "equivalent"),
    )
    evidence = (*found.evidence, Evidence("driver", apart))
    return Finding(CAUSE, found.grade, claim, evidence, None, cures, found.forecast)
