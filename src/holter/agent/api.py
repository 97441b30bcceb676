"""The small public API, for loops that no adapter knows; a no-op outside Holter.

for batch in holter.track(loader): ...
holter.step(loss=loss)
for epoch in holter.resumable(range(10), model=model, optimizer=optimizer):
    for batch in holter.resumable(loader): ...
"""

import sys
from math import nan

from ..record import ring_format as f


def _agent():
    return getattr(sys.modules.get("_holter"), "agent", None)


def _beat(agent):
    """This process's heartbeat; None outside Holter, and where it can't be had."""
    if agent is None:
        return None
    try:
        agent.greet("trainer")
        beat = agent.beat
        beat.open()
        return beat
    except Exception as error:
        agent.guard.caught("holter.api", error)
        return None


def _number(value):
    """A float that is already there; a tensor on a device is not read, since that would make the device wait."""
    if value is None:
        return nan, False
    try:
        if isinstance(value, (int, float)) or (_at_hand(value) and hasattr(value, "__float__")):
            return float(value), True
    except Exception:
        pass  # more than one number, or none: the step counts all the same
    return nan, False


def _at_hand(value):
    """True for what lies in the host's memory and is computed already, whichever library it is of."""
    here = getattr(value, "is_cpu", None)  # PyTorch
    if here is not None:
        return here is True
    if type(value).__module__.partition(".")[0] == "mlx":
        return False  # computed when it is asked for, on the GPU
    ready = getattr(value, "is_ready", None)  # JAX
    if ready is not None and not ready():
        return False
    device = getattr(value, "device", None)  # NumPy, TensorFlow, JAX, CuPy
    return device is None or "cpu" in str(device).lower()


def step(loss=None, lr=None, batch=0):
    """Tell Holter that one training step is done."""
    agent = _agent()
    beat = _beat(agent)
    if beat is None:
        return
    try:
        loss, known = _number(loss)
        rate, _ = _number(lr)
        size, _ = _number(batch)
        size = int(size) if 0 <= size < 1 << 32 else 0
        beat.step(loss, rate, nan, size, f.F_LOSS_KNOWN if known else 0)
        agent.retained.tick(beat.steps)
    except Exception as error:
        agent.guard.caught("holter.step", error)


def track(loader, total=None):
    """Iterate over `loader`; each pass of the loop is a step unless `holter.step` or a framework says when."""
    agent = _agent()
    beat = _beat(agent)
    if beat is None:
        # Not `yield from`: that would close a generator that the script may want to go on with after a `break`.
        for batch in loader:
            yield batch
        return
    agent.guard(_new_pass)(beat, loader, total)
    source = iter(loader)
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
            step()


def resumable(items, every=5.0, **state):
    """Iterate over `items` so that a run under `--heal` that is killed goes on from here.

    `state` is what to keep: whatever has a `state_dict` (model, optimizer, scheduler, scaler), a list or a dict. It is
    copied every few seconds; random generators and the place in the loop are kept with it. A resumable loop within
    another needs no `state`. Without `--heal` it is a plain loop.
    """
    agent = _agent()
    loops = _loops(agent) if getattr(agent, "heal", None) else None
    if loops is None:
        return _plain(agent, items)
    return loops.run(items, float(every), state)


def _plain(agent, items):
    beat = _beat(agent)
    for item in items:
        before = beat.steps if beat is not None else 0
        yield item
        if beat is not None and beat.steps == before:
            step()


def _loops(agent):
    try:
        from importlib import import_module

        # The agent's own, whichever Holter is installed beside the script.
        return import_module("_holter.agent.heal.resume_loop").loops_of(agent)
    except Exception as error:
        agent.guard.caught("holter.resumable", error)
        return None


def _new_pass(beat, loader, total):
    beat.new_epoch(beat.epoch + 1)
    try:
        length = int(len(loader) if total is None else total)
    except Exception:
        length = 0  # a stream without an end that is known
    if length > 0:
        beat.plan(per_epoch=length)
