"""Whether a loss is about as low as it has been: a state is only worth keeping then, and not on its way up."""

_LAST = 16  # losses whose median is the level


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
