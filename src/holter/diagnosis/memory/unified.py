"""Apple silicon: one memory for CPU and GPU, and why PyTorch raises no error there when it is full."""

from __future__ import annotations

from holter.diagnosis.core.evidence import on_macos
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Evidence
from holter.record.events.timeline import Apple, DeviceMemory
from holter.units import size

WATERMARK = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"

# PyTorch's default, times Metal's recommended working set, which is about three quarters of the memory.
_DEFAULT_RATIO = 1.7
_RECOMMENDED = 0.75


def metal_peak(record: RecordLike) -> float:
    """Give the most that the Metal driver held for the run."""
    return max((line.driver or 0.0 for line in record.of(DeviceMemory)), default=0.0)


def pressure_evidence(record: RecordLike) -> tuple[Evidence, ...]:
    """Give how hard the system was pressed for memory, at the worst; nothing where it was well."""
    levels = [level for _, r in record.readings(Apple) if (level := r.pressure_level) is not None]
    if not levels or max(levels) < 2:
        return ()
    word = "critical" if max(levels) >= 4 else "warning"
    return (Evidence("memory pressure", f"{word} (level {max(levels)})"),)


def why_no_error(record: RecordLike) -> Evidence | None:
    """Say that no out-of-memory error was to be expected, and why; None where one would have come."""
    total = record.facts.memory_total or 0.0
    held = metal_peak(record)
    if not on_macos(record) or not held or not total:
        return None
    setting = record.facts.variables.get(WATERMARK, "")
    try:
        ratio = float(setting) if setting else _DEFAULT_RATIO
    except ValueError:
        setting, ratio = "", _DEFAULT_RATIO
    mark = ratio * _RECOMMENDED * total
    if 0 < mark <= total:
        return None
    if ratio == 0:
        why = f"{WATERMARK}=0.0 switches its limit off"
    else:
        which = (
            f"{WATERMARK}={setting}" if setting else f"its default watermark ({_DEFAULT_RATIO} × the recommended size)"
        )
        why = f"{which} lies at about {size(mark)}, above the machine's {size(total)}"
    return Evidence("no error came", f"the Metal driver held {size(held)}, and PyTorch raises none: {why}")
