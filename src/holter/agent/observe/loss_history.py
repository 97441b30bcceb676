"""The last losses of a process, what is far above their usual level, and whether one was non-finite."""

from collections import deque
from math import inf

_KEPT = 64
_LOOKS = 3  # a run may lose a step and recover (a loss scaler does); one that never does is looked at once
_SPIKE = 100.0


class History:
    """Told every loss that is known; cheap enough for every step."""

    def __init__(self, over, every=False):
        self.over = over  # called when a loss is a number again
        self.every = every  # each loss is wanted, also those that are like the others
        self.losses = deque(maxlen=_KEPT)
        self.norms = deque(maxlen=8)
        self.alarm = inf  # a loss above this is worth a look at its batch
        self.usual = -inf  # a loss up to this is one of many
        self.count = 0
        self.looks = 0
        self.well = True  # the last loss was a number
        self.numb = False  # the losses say nothing: weights are non-finite and losses are not
        self.spikes = []

    def add(self, loss):
        """Keep a finite loss."""
        self.losses.append(loss)
        if not self.well and not self.numb:
            self.well = True
            self._set_alarm()
            self.over()
        self.count += 1
        if self.count < 8 or not self.count & 15:
            self._set_alarm()

    def _set_alarm(self):
        known = sorted(abs(loss) for loss in self.losses)
        if len(known) >= 3:
            self.alarm = _SPIKE * max(known[len(known) // 2], 1e-6)
            self.usual = self.alarm if self.well and not self.every else -inf

    def wants_look(self):
        """True for the first loss that is non-finite, and for the first after a recovery."""
        if not self.well or self.looks >= _LOOKS:
            return False
        self.well = False
        self.usual = -inf
        self.looks += 1
        return True

    def wants_spike(self):
        """True for the first losses that are far above all before them."""
        if len(self.spikes) >= 4:
            return False
        self.alarm = self.alarm * _SPIKE
        return True

    def fields(self):
        """What is known, as fields of an event."""
        found = {"losses": [short(loss) for loss in self.losses]}
        if self.norms:
            found["norms"] = [short(norm) for norm in self.norms]
        if self.spikes:
            found["spikes"] = self.spikes
        return found


def short(value):
    """A number as JSON can hold it: what is non-finite becomes a word."""
    value = float(value)
    if value != value:
        return "nan"
    if value in (inf, -inf):
        return "inf" if value > 0 else "-inf"
    return float("%.6g" % value)
