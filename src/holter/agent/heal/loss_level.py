"""Whether a loss is about as low as it has been: a state is only worth keeping then, and not on its way up."""

_LAST = 16  # losses whose median is the level
_FAR, _ABOVE = 30, 3  # times the first level: worse than before anything was learnt, for the first time or again


class Level:
    """Follows the losses of one training."""

    def __init__(self):
        self.first = self.lowest = None

    def holds(self, losses):
        """Tell whether the last losses are no higher than twice the lowest level, and the way down from the first."""
        last = sorted(losses[-_LAST:])
        if not last:
            return self.first is None
        level = last[len(last) // 2]
        if self.first is None:
            self.first = self.lowest = level
        self.lowest = min(self.lowest, level)
        return level <= self.lowest + abs(self.lowest) + abs(self.first - self.lowest)

    def ran_off(self, losses, again=False):
        """Tell whether the last losses are far above where they began; they may stay there as numbers for ever.

        Where that has been so before, and the rate was lowered for it, it need not be as far.
        """
        last = sorted(losses[-_LAST:])
        if len(last) < _LAST or self.first is None or self.lowest is None:
            return False
        return last[_LAST // 2] > (_ABOVE if again else _FAR) * max(abs(self.first), abs(self.lowest), 1e-12)
