"""Windows of steps: made from the ring's slots, and merged when old samples are thinned."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from holter.record import ring_format as f
from holter.record.ring_reader import Slot

_SPLIT = ("data", "forward", "backward", "optimizer")
_PHASES = ("other", *_SPLIT)
_BETWEEN = ("validation", "checkpoint", "compile")


def window(pid: int, slots: Iterable[Slot], offset: float) -> dict[str, Any] | None:
    """One `steps` line from the slots of a second; `offset` turns the monotonic clock into wall time."""
    line: dict[str, Any] = {}
    for slot in slots:
        if slot.kind == f.STEP:
            one = _single(pid, slot, offset)
            line = merge(line, one) if line else one
        elif slot.kind == f.LATE:
            late = _readings(slot)
            if line:
                line.update(_merged_readings(line, late))
            else:
                line = {"k": "steps", "t": slot.time + offset, "m": slot.time, "pid": pid, "n": 0, **late}
                line["first"] = line["last"] = slot.step
    return line or None


def _single(pid: int, slot: Slot, offset: float) -> dict[str, Any]:
    time, low, high, full, full_time, *phase_ns = slot.figures[:9]
    line: dict[str, Any] = {"k": "steps", "t": slot.time + offset, "m": slot.time, "pid": pid, "n": slot.count}
    line |= {"first": slot.step - slot.count + 1, "last": slot.step}
    line["sum"] = time * 1e-9
    if slot.count:
        line |= {"min": low * 1e-9, "max": high * 1e-9}
    else:  # what was spent after the last step
        line["first"] = slot.step
    # Of short steps only some were split into phases: what they spent stands for all.
    scale = time / full_time * 1e-9 if full and full_time else 0.0
    if scale:
        split = {name: ns * scale for name, ns in zip(_SPLIT, phase_ns, strict=True)}
        line |= {"other": max(0.0, line["sum"] - sum(split.values())), **split}
    line |= {name: ns * 1e-9 for name, ns in zip(_BETWEEN, slot.figures[9:12], strict=True) if ns}
    line |= {"epoch": slot.epoch, "batch": slot.batch, "seq": slot.seq}
    if math.isfinite(slot.lr):
        line["lr"] = slot.lr
    return line | _readings(slot)


def _readings(slot: Slot) -> dict[str, Any]:
    """Loss and gradient norm where they are known; what is not a number is told by its step instead."""
    found: dict[str, Any] = {}
    if slot.flags & f.F_LOSS_KNOWN:
        if math.isfinite(slot.loss):
            # Where only skimmed steps had a loss that is a number, the extremes were not kept.
            low, high = (x if math.isfinite(x) else slot.loss for x in (slot.loss_low, slot.loss_high))
            found["loss"] = {"last": slot.loss, "min": low, "max": high}
        if slot.figures[12]:
            found["bad_loss"] = slot.figures[12]
    if slot.flags & f.F_GRAD_KNOWN:
        if math.isfinite(slot.grad_norm):
            found["grad_norm"] = slot.grad_norm
        else:
            found["bad_grad"] = slot.step
    return found


def _merged_readings(early: dict[str, Any], late: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    a, b = early.get("loss"), late.get("loss")
    if a and b:
        found["loss"] = {
            "last": b["last"],
            "min": min(a["min"], b["min"]),
            "max": max(a["max"], b["max"]),
        }
    elif a or b:
        found["loss"] = a or b
    for name in ("bad_loss", "bad_grad"):  # the first one counts
        steps = [line[name] for line in (early, late) if name in line]
        if steps:
            found[name] = min(steps)
    if "grad_norm" in late or "grad_norm" in early:
        found["grad_norm"] = late.get("grad_norm", early.get("grad_norm"))
    return found


def merge(early: dict[str, Any], late: dict[str, Any]) -> dict[str, Any]:
    """Two neighbouring windows of one process as one."""
    merged = {**early, **late}
    # A window without steps holds a reading that came late, for a step that is in another one.
    with_steps = [line for line in (early, late) if line.get("n")]
    merged["first"] = (with_steps or [early])[0].get("first", late.get("first"))
    merged["last"] = max(line.get("last", 0) for line in with_steps or [early, late])
    for name in ("n", "sum", "lost", *_PHASES, *_BETWEEN):
        if name in early or name in late:
            merged[name] = early.get(name, 0) + late.get(name, 0)
    for name, pick in (("min", min), ("max", max)):
        values = [line[name] for line in (early, late) if name in line]
        if values:
            merged[name] = pick(values)
    return merged | _merged_readings(early, late)


def devices(pid: int, slots: Iterable[Slot], offset: float) -> list[dict[str, Any]]:
    """The last `device` line of each device among the slots."""
    names = ("allocated", "reserved", "peak", "driver", "retries", "ooms")
    latest: dict[int, dict[str, Any]] = {}
    for slot in slots:
        if slot.kind == f.DEVICE:
            fields = dict(zip(names, slot.figures, strict=False))
            head = {"k": "device", "t": slot.time + offset, "m": slot.time, "pid": pid, "device": slot.count}
            latest[slot.count] = {**head, **fields}
    return list(latest.values())
