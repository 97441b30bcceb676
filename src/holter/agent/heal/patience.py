"""How many updates may be left out: where it is more than about one in five, no batch is to blame."""

_MOST = 32  # beyond one in five


class Patience:
    """Spent with each update that is left out, regained with those that are made."""

    def __init__(self):
        self.left, self.last = _MOST, 0

    def spend(self, step, new=1):
        """At this step so many were left out; False when it is over."""
        made = max(0, step - self.last - new)
        self.left, self.last = min(_MOST, self.left + made / 4) - new, step
        return self.left >= 0
