"""Which batches are reported: each that is shaped like none of the last ones, a few of them; and always one that is
larger than all before it, by a tenth or more, so that inputs that grow are known to."""

from math import prod

_MAX_SHAPES = 50
_KEPT = 16
_FAR_LARGER = 2  # times the largest so far
_LARGER = 1.1  # times the largest that was reported


class BatchShapes:
    """The batches of one process, whichever framework draws them."""

    def __init__(self, agent):
        self.agent = agent
        self.reported = 0
        self.known = []  # shapes of the last ones that were reported
        self.largest = self.marked = 0  # elements of the largest so far, and of the largest that was reported

    def saw(self, step, shapes, samples=None):
        """One batch, by the shapes and types of its tensors; `samples` gives their numbers in the dataset.

        Two shapes that take turns are reported once each.
        """
        size = prod(shapes[0][0])
        far_larger = size >= _FAR_LARGER * self.largest > 0
        new = self.reported < _MAX_SHAPES and shapes not in self.known
        if new and not far_larger:
            self.reported += 1
            self.known = [*self.known[1 - _KEPT :], shapes]
        if far_larger or new or size >= _LARGER * self.marked > 0:
            of = {"samples": samples()} if far_larger and samples is not None else {}
            self.agent.say("batch", step=step, shapes=shapes, **of)
            self.marked = max(self.marked, size)
        self.largest = max(self.largest, size)
