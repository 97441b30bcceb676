"""Which number of parts is the fastest: many small parts let more graphs be kept, few large ones use a device better.

Found by timing a few steps of each: first fewer parts while that is quicker and there is room for them, then more,
then the numbers on both sides of the best, and at last the fewest parts that fit.
"""

import os

_STEPS = 4  # with one number of parts, of which the first does not count: libraries choose their algorithms in it
_QUICKER = 0.98
_MOST = 4  # times the parts that were first thought to fit


class Tuning:
    """The parts for batches of one shape and size."""

    def __init__(self, size, rows, fewest):
        self.size, self.fewest = size, fewest
        self.parts = self.first = _parts(size, rows)
        self.too_few = 1  # so many parts were seen not to fit
        self.best = None  # seconds and parts
        self.tried = {}  # parts -> seconds
        self.times = []
        self.done = False

    @property
    def rows(self):
        return -(-self.size // self.parts)

    @property
    def fits(self):
        """The most samples at once that were seen to fit: more than in the quickest parts, where those keep graphs."""
        fitted = [parts for parts in self.tried if parts > self.too_few] or [self.parts]
        return -(-self.size // min(fitted))

    def took(self, seconds, fits):
        """A step with the present number took so long; `fits` tells whether so many samples might fit at once."""
        if self.done:
            return
        self.times.append(seconds)
        if len(self.times) < _STEPS:
            return
        usual, self.times = sorted(self.times[1:])[(_STEPS - 1) // 2], []
        self.tried[self.parts] = usual
        if self.best is None or usual < _QUICKER * self.best[0]:
            self.best = usual, self.parts
        self._go_on(self.best[1], fits)

    def did_not_fit(self, asked, rows):
        """So many samples were asked for, and only so many fit."""
        self.too_few = max(self.too_few, _parts(self.size, asked))
        self.times = []
        if self.best is not None:
            if self.best[1] <= self.too_few:  # what fitted no longer does: begin anew from there
                too_few = self.too_few
                Tuning.__init__(self, self.size, rows, self.fewest)
                self.too_few = too_few
            else:
                self._go_on(self.best[1], lambda _rows: True)
        else:
            self.parts = self.first = _parts(self.size, rows)

    def _go_on(self, best, fits):
        """To the next number that is worth a try, or for good to the best."""
        # The last one is not for speed in place, but to know how large a part may be where none is computed twice.
        for parts in (-(-best // 2), 2 * best, best - 1, best + 1, min(self.tried) - 1):
            if parts in self.tried or parts <= self.too_few or parts > _MOST * self.first:
                continue
            rows = -(-self.size // parts)
            if rows < self.fewest or -(-self.size // rows) != parts:
                continue  # the same parts by another name
            if parts < best and not fits(rows):
                continue
            self.parts = parts
            return
        self.parts, self.done = best, True


def _parts(size, rows):
    return max(1, -(-size // max(1, rows)))


# --- Parts that a restart has asked for in the environment, from the first step on


def parts_asked(name):
    """The number in this variable; 1 where there is none."""
    try:
        return max(1, int(os.environ.get(name, 1)))
    except ValueError:
        return 1
