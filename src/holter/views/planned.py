"""A plan as text: what the step needs and of what, what fits, and which settings are worth it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, TextIO

from holter.units import count, size
from holter.views.plain import KEEPS, clean, encodable, fold, paint, wants_color

_INDENT = 11
_DEVICES = {"cpu": "the CPU", "cuda": "the GPU", "mps": "Metal"}


class Plan:
    """A plan: its figures in `told`, and as text when printed."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = dict(told)

    @property
    def largest_batch(self) -> int:
        """The largest batch that fits."""
        return int(self.told["largest"]["batch"])

    @property
    def peak(self) -> dict[str, int]:
        """The peak of the step as it was given, in bytes: low, likely, high."""
        return dict(self.told["peak"])

    def __str__(self) -> str:
        page = io.StringIO()
        write_plan(self.told, page, color=False)
        return page.getvalue().rstrip("\n")

    __repr__ = __str__


def write_plan(plan: Mapping[str, Any], stream: TextIO, *, width: int = 80, color: bool | None = None) -> None:
    """Write a plan as a page."""
    tint = wants_color(stream) if color is None else color
    wide = max(60, min(width, 120))
    fits = bool(plan["fits"])
    mark, style = ("✓", "good") if fits else ("✗", "bad")
    where = _DEVICES.get(str(plan["device"]), str(plan["device"]))
    verdict = "fits" if fits else "may not fit"
    at = f", with its peak in {plan['phase']}" if plan.get("phase") else ""
    head = fold(
        f"{mark} a batch of {count(plan['batch'])} needs {_about(plan['peak'])} on {where}{at}: "
        f"it {verdict} into {size(plan['memory'])} ({clean(plan['memory_from'])})",
        wide, "", "  ",
    )  # fmt: skip
    lines = [paint(head[0][:1], style, tint) + paint(head[0][1:], "bold", tint)]
    lines += [paint(line, "bold", tint) for line in head[1:]]
    lines += _block("Parts", _parts(plan), tint)
    lines += _block("Batch", _curve(plan), tint)
    best = plan["largest"]
    text = "not even one sample fits"
    if best["batch"]:
        text = f"{count(best['batch'])}, with {_about(best)}"
    largest = fold(text, wide - _INDENT)
    more = plan.get("largest_without_holes")
    if more:
        text = f"{count(more['batch'])}, with {_about(more)}, in a process that is started with this variable "
        text += "(no holes in its heap):"
        largest += fold(text, wide - _INDENT)
    lines += _block("Largest", largest, tint)
    lines += [clean(f"  {name}={value}") for name, value in (more["environ"].items() if more else ())]
    lines += _block("Settings", _settings(plan, wide - _INDENT), tint)
    most = plan.get("buys_most")
    if most:
        text = f"{most['name']} takes most off the peak: {size(most['saves'])} ({KEEPS[most['keeps']]})"
        lines += _block("Most", fold(text, wide - _INDENT), tint)
    lines += _block("Note", [line for note in _notes(plan) for line in fold(clean(note), wide - _INDENT)], tint)
    stream.write(encodable("\n".join(lines) + "\n", stream))


def _block(name: str, lines: list[str], color: bool) -> list[str]:
    if not lines:
        return []
    first = f"  {paint(name, 'dim', color)}{' ' * (_INDENT - 2 - len(name))}{lines[0]}"
    return ["", first, *(" " * _INDENT + line for line in lines[1:])]


def _about(peak: Mapping[str, int]) -> str:
    return f"about {size(peak['likely'])} ({size(peak['low'])} to {size(peak['high'])})"


def _parts(plan: Mapping[str, Any]) -> list[str]:
    parts = dict(plan.get("parts") or {})
    if plan.get("context"):
        parts["context"] = plan["context"]
    names = {"optimizer": "optimizer state", "context": "driver, besides"}
    if plan["device"] == "cpu":
        names["framework"] = "framework, holes"
    likely = max(1, plan["peak"]["likely"])
    lines = []
    for name, amount in parts.items():
        bar = "█" * round(24 * amount / likely)
        lines.append(f"{names.get(name, name):<18}{size(amount):>9}  {bar}".rstrip())
    return lines


def _curve(plan: Mapping[str, Any]) -> list[str]:
    best = plan["largest"]["batch"]
    rows = [row for row in plan["curve"] if row["batch"] != best or row["batch"] == plan["batch"]][:6]
    wide = [max(len(count(row["batch"])), len(size(row["likely"]))) for row in rows]
    names = "  ".join(count(row["batch"]).rjust(w) for row, w in zip(rows, wide, strict=True))
    peaks = "  ".join(size(row["likely"]).rjust(w) for row, w in zip(rows, wide, strict=True))
    return [names, peaks]


def _settings(plan: Mapping[str, Any], wide: int) -> list[str]:
    rows = plan.get("settings") or []
    if not rows:
        return []
    longest = min(32, max(len(row["name"]) for row in rows))
    lines = [f"{'':2}{'':<{longest}}  {'peak, at most':>13}  {'speed':>5}  result"]
    for row in rows:
        mark = "✓" if row["fits"] else "✗"
        speed = f"{row['speed']:.2f}" if row["speed"] is not None else ""
        name = row["name"][:longest]
        lines.append(f"{mark} {name:<{longest}}  {size(row['peak']['high']):>13}  {speed:>5}  {row['keeps']}"[:wide])
    return lines


def _notes(plan: Mapping[str, Any]) -> list[str]:
    notes = list(plan.get("notes") or [])
    blank = {row["speed_because"] for row in plan.get("settings") or [] if row["speed"] is None}
    notes += [f"speed is left out: {why}" for why in sorted(blank) if why]
    if plan.get("seconds"):
        measured = [count(row["batch"]) for row in plan.get("measured") or []]
        how = f"small real steps of {', '.join(measured)} samples" if measured else "no real step"
        notes.append(f"planned in {plan['seconds']:.1f} s, with {how}")
    return notes
