"""How a week stays small: old samples are thinned by age, extremes kept, and never the last minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holter.record.steps import merge

# age in seconds -> seconds between what is kept
LEVELS = ((30 * 60.0, 10.0), (6 * 3600.0, 60.0), (2 * 86400.0, 300.0))


def interval_for(age: float) -> float:
    """How far apart lines of this age may lie; 0 for all of them."""
    found = 0.0
    for older_than, interval in LEVELS:
        if age >= older_than:
            found = interval
    return found


# What a run held, as different sources count it: the highs of each are never thinned away.
_HIGHS = (("cgroup", "usage"), ("apple", "footprint"), ("processes", "rss"))


def _figure(sample: dict[str, Any], probe: str, field: str) -> float:
    reading = sample.get(probe)
    value = reading.get(field) if isinstance(reading, dict) else None
    return float(value) if isinstance(value, (int, float)) else -1.0


def _highest(samples: list[dict[str, Any]], probe: str, field: str) -> dict[str, Any]:
    """The later one of equals, so that a flat curve keeps one sample and not two."""
    return max(reversed(samples), key=lambda sample: _figure(sample, probe, field))


def thin(lines: Iterable[dict[str, Any]], interval: float) -> list[dict[str, Any]]:
    """Of each interval: samples with the most memory, the last one, the steps as one window, the last of the rest."""
    kept: list[dict[str, Any]] = []
    buckets: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        buckets.setdefault(int(line["m"] // interval), []).append(line)
    for number in sorted(buckets):
        kept.extend(_thin_bucket(buckets[number]))
    return sorted(kept, key=lambda line: float(line["m"]))


def _thin_bucket(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    samples = [line for line in lines if line["k"] == "sample"]
    kept = []
    if samples:
        highs = [_highest(samples, probe, field) for probe, field in _HIGHS]
        last = samples[-1]
        kept = [sample for sample in samples[:-1] if any(sample is high for high in highs)]
        # A probe that is read rarely may have spoken in a line that goes: its last word is carried over.
        for sample in reversed(samples):
            last = {**{probe: reading for probe, reading in sample.items() if isinstance(reading, dict)}, **last}
        kept.append(last)
    windows: dict[Any, dict[str, Any]] = {}
    rest: dict[Any, dict[str, Any]] = {}
    for line in lines:
        if line["k"] == "steps":
            earlier = windows.get(line.get("pid"))
            windows[line.get("pid")] = merge(earlier, line) if earlier else line
        elif line["k"] != "sample":
            rest[(line["k"], line.get("pid"), line.get("device"))] = line
    return [*kept, *windows.values(), *rest.values()]
