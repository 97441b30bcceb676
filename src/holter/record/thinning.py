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


def memory_of(sample: dict[str, Any]) -> float:
    """What the run held at a sample: the figure whose highs are never thinned away."""
    for probe, field in (("cgroup", "usage"), ("apple", "footprint"), ("processes", "rss")):
        reading = sample.get(probe)
        if isinstance(reading, dict) and isinstance(reading.get(field), (int, float)):
            return float(reading[field])
    return 0.0


def thin(lines: Iterable[dict[str, Any]], interval: float) -> list[dict[str, Any]]:
    """Of each interval: the sample with the most memory, the last one, the steps in one window, the last of the rest."""
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
        last, high = samples[-1], max(samples, key=memory_of)
        kept = [last] if high is last else [high, last]
        # A probe that is read rarely may have spoken in a line that goes: its last word is carried over.
        for sample in samples:
            for probe, reading in sample.items():
                if probe not in last and isinstance(reading, dict):
                    last = kept[-1] = {**last, probe: reading}
    windows: dict[Any, dict[str, Any]] = {}
    rest: dict[Any, dict[str, Any]] = {}
    for line in lines:
        if line["k"] == "steps":
            earlier = windows.get(line.get("pid"))
            windows[line.get("pid")] = merge(earlier, line) if earlier else line
        elif line["k"] != "sample":
            rest[(line["k"], line.get("pid"), line.get("device"))] = line
    return [*kept, *windows.values(), *rest.values()]
