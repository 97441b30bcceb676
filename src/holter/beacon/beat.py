"""The heartbeat: what adapters see becomes phases and steps in the ring.

This is the hot path. Each call costs a fraction of a microsecond and touches nothing but this object and mapped
memory: no locks, no I/O, no allocation that lives on.
"""

from array import array
from math import nan
from time import monotonic_ns as clock

from ..record import ring_format as f

_pack = f.BODY.pack


class Beat:
    """Accounts every nanosecond of the stepping thread to one phase, and closes the account at each step."""

    __slots__ = ("epoch", "make_ring", "open_", "phase", "put", "seq", "since", "spent", "steps", "words")

    def __init__(self, make_ring):
        self.reset(make_ring)

    def reset(self, make_ring):
        """Begin anew with no ring, as a process that has not trained yet; also after a fork, in the child."""
        self.make_ring = make_ring
        self.open_ = False
        self.put = self._open_and_put
        self.words = array("Q", [0] * f.WORDS)
        self.phase = f.START
        self.since = clock()
        self.spent = [0] * len(f.PHASES)
        self.steps = 0
        self.epoch = 0
        self.seq = 0

    def open(self):
        """Make the ring: at the first sign that this process trains, so that tools and workers have none."""
        if self.open_:
            return
        self.open_ = True  # once: a folder that can't take the ring is not asked again
        private = self.words
        try:
            ring = self.make_ring()
        except OSError:
            self.put = _nowhere
            return
        for index, value in enumerate(private):
            ring.words[index] = value
        ring.words[f.W_SINCE] = self.since
        self.words = ring.words
        self.put = ring.put

    def _open_and_put(self, body):
        self.open()
        self.put(body)

    def enter(self, phase):
        """Go over to another phase; returns the one that was left, for the way back."""
        now = clock()
        previous = self.phase
        self.spent[previous] += now - self.since
        self.phase = phase
        self.since = now
        words = self.words
        words[1] = phase  # W_PHASE
        words[2] = now  # W_SINCE
        return previous

    def alive(self):
        """A sign of life within a phase that goes on, such as one batch of a validation."""
        self.words[3] = clock()  # W_ACTIVITY

    def step(self, loss, lr, grad_norm, batch, flags, n=1):
        """Close a step (or `n` that ran as one): its slot is written and a new account begins."""
        now = clock()
        spent = self.spent
        spent[self.phase] += now - self.since
        self.phase = 1  # OTHER
        self.since = now
        self.steps = steps = self.steps + n
        words = self.words
        words[1] = 1
        words[2] = now
        words[4] = steps  # W_STEP
        # what passed before the first step is the start's, and no part of any step
        _, other, data, forward, backward, optimizer, validation, checkpoint, compiling = spent
        self.put(
            _pack(
                self.seq,
                now,
                steps,
                1,
                flags,
                self.epoch,
                other,
                data,
                forward,
                backward,
                optimizer,
                validation,
                checkpoint,
                compiling,
                loss,
                lr,
                grad_norm,
                batch,
            )
        )
        self.seq += 1
        spent[:] = _EMPTY

    def late(self, step, loss=None, grad_norm=None):
        """A reading that came back from the device after its step was closed."""
        flags = (f.F_LOSS_KNOWN if loss is not None else 0) | (f.F_GRAD_KNOWN if grad_norm is not None else 0)
        self.put(
            _pack(
                self.seq,
                clock(),
                step,
                f.LATE,
                flags,
                self.epoch,
                *([0] * 8),
                nan if loss is None else loss,
                nan,
                nan if grad_norm is None else grad_norm,
                0,
            )
        )
        self.seq += 1

    def device(self, allocated=0, reserved=0, peak=0, driver=0, retries=0, ooms=0, index=0):
        """The framework's own memory figures."""
        figures = (allocated, reserved, peak, driver, retries, ooms, index, 0)
        self.put(_pack(self.seq, clock(), self.steps, f.DEVICE, 0, self.epoch, *figures, nan, nan, nan, 0))
        self.seq += 1

    def new_epoch(self, epoch):
        self.epoch = epoch
        self.words[f.W_EPOCH] = epoch

    def plan(self, steps=0, per_epoch=0, epochs=0):
        if steps:
            self.words[f.W_PLANNED] = int(steps)
        if per_epoch:
            self.words[f.W_PER_EPOCH] = int(per_epoch)
        if epochs:
            self.words[f.W_EPOCHS] = int(epochs)


def _nowhere(_body):
    pass


_EMPTY = [0] * len(f.PHASES)
