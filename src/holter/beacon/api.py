"""The small public API, for loops that no adapter knows; a no-op outside Holter.

for batch in holter.track(loader): ...
holter.step(loss=loss)
"""

import sys
from math import nan

from ..record import ring_format as f


def _beat():
    guest = getattr(sys.modules.get("_holter"), "guest", None)
    if guest is None:
        return None
    guest.greet("trainer")
    beat = guest.beat
    beat.open()
    return beat


def _number(value):
    """A float that is already there; a tensor on a device is not read, since that would make the device wait."""
    if value is None:
        return nan, False
    if isinstance(value, (int, float)):
        return float(value), True
    if getattr(value, "is_cpu", True) and hasattr(value, "__float__"):
        return float(value), True
    return nan, False


def step(loss=None, lr=None, batch=0):
    """Tell Holter that one training step is done."""
    beat = _beat()
    if beat is None:
        return
    try:
        loss, known = _number(loss)
        rate, _ = _number(lr)
        beat.step(loss, rate, nan, int(batch), f.F_LOSS_KNOWN if known else 0)
    except Exception as error:
        sys.modules["_holter"].guest.guard.caught("holter.step", error)


def track(loader, total=None):
    """Iterate over `loader`; each pass of the loop is a step unless `holter.step` or a framework says when."""
    beat = _beat()
    if beat is None:
        yield from loader
        return
    try:
        length = total if total is not None else len(loader)
    except Exception:
        length = 0
    beat.new_epoch(beat.epoch + 1)
    beat.plan(per_epoch=length)
    source = iter(loader)
    before = beat.steps
    while True:
        previous = beat.enter(f.DATA)
        try:
            batch = next(source)
        except StopIteration:
            beat.enter(f.OTHER if previous == f.START else previous)
            return
        beat.enter(f.OTHER)
        before = beat.steps
        yield batch
        if beat.steps == before:
            beat.step(nan, nan, nan, 0, 0)
