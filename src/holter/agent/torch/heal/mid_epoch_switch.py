"""When a pass that is under way can be gone on with in parts: after an update that nothing is left over from.

Until then the loop has been handed whole batches. It must be seen to draw one, learn from it and update, with nobody
else drawing in between: a loop that draws ahead, or from two loaders, is left as it is until its next pass.
"""

import weakref

_DRAW, _BACKWARD, _STEP = "draw", "backward", "step"


class Handover:
    """Watches the order of what a loop does, from the moment that parts are wanted."""

    def __init__(self):
        self.refused = None  # the iterator of a pass that must not be changed in its midst
        self._afresh()

    def _afresh(self, iterator=None):
        self.iterator = weakref.ref(iterator) if iterator is not None else None
        self.last = _DRAW if iterator is not None else ""
        self.from_step = self.regular = False

    def waits_for_the_next(self, iterator):
        """This pass goes on as it is."""
        self.refused = weakref.ref(iterator)

    def drew(self, iterator):
        """Before a batch is drawn; True where it may be the first in parts."""
        if self.refused is not None and self.refused() is iterator:
            return False
        if self.iterator is None or self.iterator() is not iterator or self.last == _DRAW:
            self._afresh(iterator)
            return False
        ready = self.regular and self.last == _STEP
        self.last = _DRAW
        return ready

    def backward(self):
        if self.last not in (_DRAW, _BACKWARD):
            self._afresh()
        else:
            self.last = _BACKWARD

    def stepped(self):
        """After an update; two optimizers may follow one backward."""
        if self.last == _BACKWARD:
            self.last, self.regular, self.from_step = _STEP, self.from_step, True
        elif self.last != _STEP:
            self._afresh()
