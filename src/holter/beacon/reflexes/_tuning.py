"""Which size of parts is the fastest: small parts let more graphs be kept, large ones use the device better.

Found by timing a few steps of each: the largest that fits, then a half and a quarter of it while that is quicker.
"""

_STEPS = 5  # at one size, of which the first two do not count
_QUICKER = 0.98


class Tuning:
    """The size of parts for batches of one shape."""

    def __init__(self, rows, fewest):
        self.rows = self.largest = rows
        self.fewest = fewest
        self.best = None  # seconds and size
        self.times = []
        self.done = False

    def took(self, seconds):
        """A step at the present size took so long."""
        if self.done:
            return
        self.times.append(seconds)
        if len(self.times) < _STEPS:
            return
        usual = sorted(self.times[2:])[len(self.times[2:]) // 2]
        self.times = []
        quicker = self.best is None or usual < _QUICKER * self.best[0]
        if quicker:
            self.best = usual, self.rows
        smaller = self.rows // 2
        self.done = not quicker or smaller < self.fewest or smaller < self.largest // 4
        self.rows = self.best[1] if self.done else smaller

    def did_not_fit(self, rows):
        """Only so many samples fit after all: begin anew from there."""
        if rows < self.rows:
            self.__init__(rows, self.fewest)
