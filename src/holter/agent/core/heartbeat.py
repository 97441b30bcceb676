"""The heartbeat: what adapters see becomes phases and steps in the ring.

This is the hot path. Each call costs a fraction of a microsecond and touches nothing but this object and mapped
memory: no locks, no I/O, no allocation that lives on. Two things keep it small where steps are short:
- a slot is written at most every 20 ms and then covers all steps since the last one; the number of steps itself is
  in the header at every step;
- where the steps of late took less than 10 ms in the mean, one in 20 ms is split into phases, and at most every
  eighth. The mean, as a loop often alternates: with two workers, a batch that was waited for and one that lay ready.
  Adapters look at `skim`: while it is not zero they count it down and pass through. A loop that makes no steps, such as
  a validation, runs it out at once.
"""

import errno
import mmap
import os
from array import array
from math import inf, nan
from time import monotonic_ns as clock
from zlib import crc32

from ...record import ring_format as f

_pack = f.BODY.pack
_WINDOW = 20_000_000  # ns between slots
_SHORT_STEP = 10_000_000  # ns: steps below this are skimmed
_OF_LATE = 32  # steps that the pace is the mean of, the later ones more than the earlier
_SKIMMED = 8  # at most one short step in this many is split into phases
_SKIMMED_CALLS = 10  # calls of adapters that one skimmed step may take
_NONE = [0] * len(f.PHASES)
_RARE_LOOK_S = 1.0  # seconds between two looks at what need not be known at every step
_FIRST_RARE = 0.1
_TIMED = (2, 3, 4, 5, 6, 7, 8)  # the phases whose time a slot holds


def look_pause(since):
    """Give the seconds to the next look, so long after the first step: a leak on a fast machine may last only two."""
    return min(_RARE_LOOK_S, max(_FIRST_RARE, since))


class Beat:
    """Accounts the stepping thread's time to phases, and closes the account at each step."""

    __slots__ = (
        "bad_loss",
        "batch",
        "ended",
        "epoch",
        "flags",
        "full",
        "full_time",
        "grad_norm",
        "high",
        "loss",
        "loss_high",
        "loss_low",
        "low",
        "lr",
        "make_ring",
        "n",
        "open_",
        "opened",
        "pace",
        "phase",
        "put",
        "seq",
        "since",
        "skim",
        "skim_until",
        "skipped",
        "spent",
        "steps",
        "sums",
        "time",
        "words",
        "write_at",
    )

    def __init__(self, make_ring):
        self.reset(make_ring)

    def reset(self, make_ring):
        """Begin anew with no ring, as a process that has not trained yet; also after a fork, in the child."""
        self.make_ring = make_ring
        self.open_ = False
        self.opened = 0
        self.put = self._open_and_put
        self.words = array("Q", [0] * f.WORDS)
        self.phase = f.START
        self.since = self.ended = clock()
        self.spent = list(_NONE)  # of the present step, by phase
        self.steps = self.epoch = self.seq = 0
        self.skim = self.skim_until = self.skipped = 0
        self.pace = 2 * _SHORT_STEP  # the first steps are all split
        self.write_at = self.batch = 0
        self.lr = nan
        self._new_window()

    def _new_window(self):
        self.n = self.time = self.high = self.full = self.full_time = self.flags = self.bad_loss = 0
        self.low = 1 << 62
        self.sums = list(_NONE)  # of the window's full steps, by phase; the last three of all of them
        self.loss = self.grad_norm = nan
        self.loss_low, self.loss_high = inf, -inf

    def open(self):
        """Make the ring: at the first sign that this process trains, so that tools and workers have none."""
        if self.open_:
            return
        self.open_ = True  # once: a folder that can't take the ring is not asked again
        self.opened = clock()
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
        """Go over to another phase; returns the one before, for the way back."""
        now = clock()
        previous = self.phase
        self.spent[previous] += now - self.since
        self.phase = phase
        self.since = now
        words = self.words
        words[1] = phase  # W_PHASE
        words[2] = now  # W_SINCE
        return previous

    def next_look(self, now):
        """Give the moment of the next look at what need not be known at every step."""
        return now + int(1e9 * look_pause((now - self.opened) / 1e9))

    def alive(self):
        """A sign of life within a phase that goes on, such as one batch of a validation."""
        self.words[3] = clock()  # W_ACTIVITY

    def skip(self, n=1):
        """Count a step of which nothing else is wanted; False where the next one is to be split into phases."""
        if clock() >= self.skim_until:
            return False
        self.skipped += n
        self.skim = _SKIMMED_CALLS
        self.steps = self.words[4] = self.steps + n  # W_STEP
        self.words[10] = 0  # W_BACKWARDS
        return True

    def note(self, loss):
        """A loss that is known."""
        self.flags |= 1  # F_LOSS_KNOWN
        if loss - loss == 0.0:  # neither infinite nor NaN
            self.loss = loss
        else:
            self.bad(self.steps)

    def bad(self, step):
        """A loss that is not a number; the first of a window is kept."""
        self.flags |= 1
        if not self.bad_loss:
            self.bad_loss = step

    def step(self, loss, lr, grad_norm, batch, flags, n=1):
        """Close a step, or `n` that ran as one."""
        self.steps = steps = self.steps + n
        self.words[4] = steps  # W_STEP
        self.words[10] = 0  # W_BACKWARDS
        if flags & 1:  # F_LOSS_KNOWN
            self.note(loss)
        if self.skim_until:
            self.skipped += n
            now = clock()
            if now < self.skim_until:
                self.skim = _SKIMMED_CALLS
            else:  # the next one is split into phases: its account begins here
                self.skim = self.skim_until = 0
                self.spent[:6] = _NONE[:6]
                self.phase = 1
                self.since = now
            return
        now = clock()
        spent = self.spent
        spent[self.phase] += now - self.since
        self.phase = 1  # OTHER
        self.since = now
        words = self.words
        words[1] = 1
        words[2] = now
        # what passed before the first step, and what lay between two of them, does not belong to a step
        between = spent[6] + spent[7] + spent[8]
        passed = max(0, now - self.ended - between - spent[0])
        one = spent[1] + spent[2] + spent[3] + spent[4] + spent[5]
        self.ended = now
        self.time += passed
        count = n + self.skipped
        self.n += count
        self.pace += (passed // count - self.pace) * min(count, _OF_LATE) // _OF_LATE
        self.full += n
        self.full_time += one
        usual = max(0, passed - one) // self.skipped if self.skipped else one
        self.low = min(self.low, one, usual)
        self.high = max(self.high, one, usual)
        self.skipped = 0
        sums = self.sums
        for phase in _TIMED:
            sums[phase] += spent[phase]
        spent[:] = _NONE
        if one < _SHORT_STEP and self.pace < _SHORT_STEP:
            self.skim_until = now + max(_WINDOW, (_SKIMMED - 1) * one)
            self.skim = _SKIMMED_CALLS
        self.flags |= flags
        if flags & 1 and loss - loss == 0.0:
            self.loss_low = min(self.loss_low, loss)
            self.loss_high = max(self.loss_high, loss)
        if flags & 2:  # F_GRAD_KNOWN
            self.grad_norm = grad_norm
        self.lr = lr
        self.batch = batch
        if now >= self.write_at:
            self.write(now)

    def write(self, now):
        """Write the window's slot and begin a new one."""
        self.write_at = now + _WINDOW
        sums = self.sums
        # fmt: off
        self.put(_pack(
            self.seq, now, self.steps, f.STEP, self.flags, self.epoch,
            self.n, self.batch, self.time, self.low, self.high, self.full, self.full_time,
            sums[2], sums[3], sums[4], sums[5], sums[6], sums[7], sums[8], self.bad_loss,
            self.loss, self.loss_low, self.loss_high, self.lr, self.grad_norm,
        ))
        # fmt: on
        self.seq += 1
        self._new_window()

    def flush(self):
        """At the end of the process: what the last window holds, and what was spent since."""
        self.enter(self.phase)
        for phase in _TIMED[4:]:
            self.sums[phase] += self.spent[phase]
        if self.skipped:
            self.n += self.skipped
            self.time += max(0, self.since - self.ended - sum(self.spent[6:]))
            self.skipped = 0
        if self.n or any(self.sums[6:]):
            self.low = min(self.low, self.high)
            self.write(self.since)

    def late(self, step, loss=None, grad_norm=None):
        """A reading that came back from the device after its step was closed."""
        flags = (f.F_LOSS_KNOWN if loss is not None else 0) | (f.F_GRAD_KNOWN if grad_norm is not None else 0)
        value = nan if loss is None else loss
        bad = step if loss is not None and loss - loss != 0.0 else 0
        norm = nan if grad_norm is None else grad_norm
        head = (self.seq, clock(), step, f.LATE, flags, self.epoch, 0, 0)
        self.put(_pack(*head, *([0] * 12), bad, value, value, value, nan, norm))
        self.seq += 1

    def device(self, allocated=0, reserved=0, peak=0, driver=0, retries=0, ooms=0, index=0):
        """The framework's own memory figures."""
        head = (self.seq, clock(), self.steps, f.DEVICE, 0, self.epoch, index, 0)
        figures = (allocated, reserved, peak, driver, retries, ooms)
        self.put(_pack(*head, *figures, *([0] * 7), nan, nan, nan, nan, nan))
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


# --- The writing side of the ring: one per process, mapped memory that outlives it

_WRITTEN = f.BODY.size + f.CRC.size
# A ring takes at most so small a share of what is free: in a container's 64 MB others need it more.
_FREE_SHARE = 256
_MIN_SLOTS = 64  # they hold more than a second, and the recorder comes each second


class Ring:
    """A mapped file whose every byte is reserved beforehand: a full disk can never turn a store into a SIGBUS."""

    def __init__(self, folder):
        found = os.statvfs(folder)
        free = found.f_bavail * found.f_frsize
        self.capacity = max(_MIN_SLOTS, min(f.CAPACITY, (free // _FREE_SHARE - f.HEADER) // f.SLOT))
        size = f.HEADER + f.SLOT * self.capacity
        if size * 8 > free:
            raise OSError(errno.ENOSPC, "too little space")
        made, pid = clock(), os.getpid()
        # By the time, too: an earlier process may have had this number, or this one another program.
        path = os.path.join(folder, "%d.%d.ring" % (pid, made))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            zeros = bytes(1 << 16)
            missing = size
            while missing > 0:
                missing -= os.write(fd, zeros[: min(missing, len(zeros))])
            self.map = mmap.mmap(fd, size)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        head = f.HEAD.pack(f.MAGIC, f.VERSION, f.SLOT, self.capacity, pid, made, 0)
        head = head[:-4] + f.CRC.pack(crc32(head[:-4]))
        self.map[: len(head)] = head
        end = f.WORDS_AT + 8 * f.WORDS
        self.words = memoryview(self.map)[f.WORDS_AT : end].cast("Q")
        self.head = 0

    def put(self, body):
        """Write one packed slot (all but its checksum); the header's count moves last."""
        n = self.head
        at = f.HEADER + (n % self.capacity) * f.SLOT
        self.map[at : at + _WRITTEN] = body + f.CRC.pack(crc32(body))
        self.head = n + 1
        self.words[f.W_HEAD] = n + 1
