"""No claim may be told that its own numbers contradict: reads the figures of a verdict and holds them together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_UNITS = {"B": 1.0, "bytes": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_SIZE = r"([\d,.]+) (B|bytes|KB|MB|GB|TB)\b"
_REACHED = re.compile(
    rf"(?:reached|came to|held) {_SIZE}(?: at most)?, ([\d,]+) % of [^:;]*?(?: of {_SIZE})?(?=$|[;:,])"
)
_STEADY = re.compile(rf"steady at {_SIZE} for .*?then it reached {_SIZE}")
_BEFORE = re.compile(rf"stood at {_SIZE} before them.*?reached {_SIZE}")
_COPIED = re.compile(rf"copied {_SIZE} of memory")
_PART = re.compile(rf"reached {_SIZE}.*?; {_SIZE} of it")
_RATE = re.compile(rf"(?:grew|grows|by) {_SIZE} per step")
_TOTAL = re.compile(rf"{_SIZE} in ([\d,]+) steps")
_RANGE = re.compile(rf"{_SIZE} to {_SIZE} per step")
_SINCE = re.compile(r"since step ([\d,]+)")
_PERCENT = re.compile(r"([\d,]+) % of (?:the|its|it)")
_STANDS = re.compile(rf"stands at {_SIZE} of")
_LAST_READ = re.compile(rf"killed it at [^;]*? of {_SIZE}; the last reading, .*?, was {_SIZE}")

# A run that died of a limit came this near to it, or the claim says that nobody saw it.
_NEAR = 85
# Two roundings lie between a figure and the one that it is held against.
_ROUNDED = 1.08
_FOR_MEMORY = ("leak", "oversize")


def _bytes(number: str, unit: str) -> float:
    return float(number.replace(",", "").rstrip(".")) * _UNITS[unit]


def _whole(number: str) -> int:
    return int(number.replace(",", ""))


def contradictions(verdict: Mapping[str, Any]) -> list[str]:
    """Everything in a verdict, as `holter why --json` gives it, that does not go with its own figures."""
    found = []
    ending = verdict["ending"]
    for finding in verdict["findings"]:
        claim = finding["claim"]
        texts = [claim, *(f"{one['what']}: {one['value']}" for one in finding["evidence"])]
        died = ending["kind"] == "oom-killed" and finding["cause"].split(".")[0] in _FOR_MEMORY
        for contradiction in (*_of_claim(claim, died=died), *_of_rates(texts), *_of_steps(claim, ending["at_step"])):
            found.append(f"{finding['cause']}: {contradiction}: {claim}")
    since = {step for finding in verdict["findings"] for step in _SINCE.findall(finding["claim"])
             if finding["cause"].startswith(_FOR_MEMORY)}  # fmt: skip
    if len(since) > 1:
        found.append(f"growth that began at several steps: {sorted(since)}")
    return found


def _of_claim(claim: str, *, died: bool) -> Iterator[str]:
    for number, unit, percent, limit, limit_unit in _REACHED.findall(claim):
        if died and _whole(percent) < _NEAR:
            yield "it died of a limit that it was far from"
        if limit and abs(100 * _bytes(number, unit) / _bytes(limit, limit_unit) - _whole(percent)) > 8:
            yield "the percentage is another"
    for percent in _PERCENT.findall(claim):
        if _whole(percent) > 100:
            yield "more than all of it"
    for level, unit, top, top_unit in _STEADY.findall(claim):
        if _bytes(top, top_unit) < 1.05 * _bytes(level, unit):
            yield "a jump to where it had been all along"
    for limit, unit, last, last_unit in _LAST_READ.findall(claim):
        if _bytes(last, last_unit) >= 0.95 * _bytes(limit, unit):
            yield "it was seen at the limit after all"
    for whole, unit, part, part_unit in _PART.findall(claim):
        if _bytes(part, part_unit) > _ROUNDED * _bytes(whole, unit):
            yield "a part larger than the whole"
    for low, unit, top, top_unit in _BEFORE.findall(claim):
        rise = _bytes(top, top_unit) - _bytes(low, unit)
        # Both ends are rounded, to a tenth of a gigabyte where they are large.
        if any(_bytes(*copied) > _ROUNDED * rise + 0.1e9 for copied in _COPIED.findall(claim)):
            yield "more was copied than memory rose by"


def _of_rates(texts: Sequence[str]) -> Iterator[str]:
    rates = [_bytes(*one) for one in _RATE.findall(texts[0])]
    if not rates:
        return
    if max(rates) > _ROUNDED * min(rates):
        yield "two rates for one growth"
    for text in texts:
        for stands in _STANDS.findall(texts[0]) if text.startswith("growth") else ():
            if any(_bytes(*total[:2]) > _ROUNDED * _bytes(*stands) for total in _TOTAL.findall(text)):
                yield f"it grew by more than it holds ({text})"
        for total, unit, steps in _TOTAL.findall(text):
            each = _bytes(total, unit) / max(1, _whole(steps))
            if text.startswith("growth") and not each / 1.15 <= rates[0] <= each * 1.15:
                yield f"the rate is another than in the evidence ({text})"
        for low, low_unit, high, high_unit in _RANGE.findall(text):
            if not _bytes(low, low_unit) / _ROUNDED <= rates[0] <= _bytes(high, high_unit) * _ROUNDED:
                yield f"the rate lies outside of its own bounds ({text})"


def _of_steps(claim: str, at_step: int | None) -> Iterator[str]:
    for step in _SINCE.findall(claim):
        if at_step is not None and _whole(step) > at_step:
            yield f"growth since a step that was never made (it came to {at_step})"
