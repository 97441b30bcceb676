"""Which batches are reported: each that is shaped like none of the last ones, and always one far larger than all."""

from math import prod

_MAX_SHAPES = 50
_KEPT = 16
_FAR_LARGER = 2  # times the largest so far


class BatchShapes:
    """The batches of one process, whichever framework draws them."""

    def __init__(self, agent):
        self.agent = agent
        self.reported = 0
        self.known = []  # shapes of the last ones that were reported
        self.largest = 0  # elements of the largest so far

    def saw(self, step, shapes, samples=None):
        """One batch, by the shapes and types of its tensors; `samples` gives their numbers in the dataset.

        Two shapes that take turns are reported once each.
        """
        size = prod(shapes[0][0])
        if size >= _FAR_LARGER * self.largest > 0:
            of = {"samples": samples()} if samples is not None else {}
            self.agent.say("batch", step=step, shapes=shapes, **of)
        elif self.reported < _MAX_SHAPES and shapes not in self.known:
            self.reported += 1
            self.known = [*self.known[1 - _KEPT :], shapes]
            self.agent.say("batch", step=step, shapes=shapes)
        self.largest = max(self.largest, size)
