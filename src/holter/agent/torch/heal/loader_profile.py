"""What is known of one loader and of the loop that trains with it, learned from the parts of its first batch."""

import weakref

from . import reduction as shares
from .cut import Cutter
from .reduction import Reading

_VAIN = 2


class LoaderProfile:
    """Whether and how the batches of a loader can be handed out in parts."""

    def __init__(self, torch, loader):
        self.torch = torch
        self.cutter = Cutter(torch, loader.batch_size)
        self.trained = None  # whether its batches are followed by a backward
        self.vain = 0  # passes of which nothing was learnt
        self.looked = self.settled = False
        self.off = ""  # why not
        self.changed = ""  # what is not the same, where that is allowed
        self.updates = 0
        self.told_of = 0  # parts, when that was last told
        self.iterations = 0  # of the last pass, to its end
        self.redo = False  # what was learned from the first parts asks for another go
        self.rules, self.readings = {}, {}  # of each backward of a part, in order

    def in_vain(self):
        """No backward has followed a batch: evaluations, or a look at the data before they are learnt from."""
        if self.trained is None:
            self.trained = False
            self.vain += 1

    def begins(self):
        """A new pass: one in vain does not yet say that all are."""
        if self.trained is False and self.vain < _VAIN:
            self.trained = None

    def rule(self, course, number, root):
        """What a part counts for, by its backward; raises where no rule is true."""
        if self.settled:
            return self.rules.get(number, self.rules.get(0, "samples"))
        reading = Reading(root, course.rows)
        if course.at == 0 or number not in self.readings:
            self.readings[number] = reading
            return self.rules.setdefault(number, reading.guess)
        bounds = course.bounds[0], course.bounds[course.at]
        found = shares.settle(self.torch, self.readings[number], reading, course.leaves, self.cutter.axes, bounds)
        if found != self.rules[number]:
            self.rules[number] = found
            self.redo = True
        return found

    def share(self, course, rule):
        """What the gradient of the present part counts for in the whole batch's."""
        found = course.shares.get((rule, course.at))
        if found is None:
            found = shares.share(self.torch, rule, course.leaves, course.size, *course.bounds[course.at])
            course.shares[rule, course.at] = found
        return found

    def forget(self):
        """Before another go: the rules that were found stay."""
        self.readings, self.redo = {}, False


# --- When a pass that is under way can be gone on with in parts: after an update that nothing is left over from
# Until then the loop has been handed whole batches. It must be seen to draw one, learn from it and update, with
# nobody else drawing in between: a loop that draws ahead, or from two loaders, is left as it is until its next pass.

_DRAW, _BACKWARD, _STEP = "draw", "backward", "step"


class MidEpochSwitch:
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


# --- One pass over a loader whose batches are handed out in parts: the batch in hand, and the place in it


class LoaderPass:
    """Made when a pass begins, or in its midst; lives as long as its iterator."""

    def __init__(self, loader, lesson, before=0):
        self.loader, self.lesson = loader, lesson
        self.open = True
        self.cut = False  # batches of this pass are handed out in parts
        self.led = False  # and the loop goes by them: where several loaders are drawn from, by the first
        self.before = before  # whole batches of this pass that were handed out without it
        self.number = 0  # batches drawn since
        self.serial = 0  # parts that were followed by a backward
        self.handed = before  # what the loop has been handed in this pass, parts and batches
        self.extra = 0  # parts that were handed out once more
        self.rewound = False  # the batch in hand is to be begun with once more
        self.batch = self.leaves = None
        self.size, self.bounds, self.at = 0, [], -1
        self.shares = {}
        self.left = None  # tells when its iterator is gone

    def take(self, batch, bounds, size, leaves):
        """A new batch, of which nothing has been handed out yet."""
        self.batch, self.bounds, self.size, self.leaves = batch, bounds, size, leaves
        self.at = -1
        self.shares = {}
        self.cut = True

    @property
    def pending(self):
        return self.batch is not None and self.at + 1 < len(self.bounds)

    @property
    def at_last(self):
        return self.at + 1 >= len(self.bounds)

    @property
    def drawn(self):
        """Batches of this pass so far."""
        return self.before + self.number

    @property
    def to_come(self):
        """Parts of the batch in hand."""
        return len(self.bounds) - self.at - 1 if self.batch is not None else 0

    @property
    def rows(self):
        begin, end = self.bounds[self.at]
        return end - begin

    def next_part(self):
        self.at += 1
        self.handed += 1
        return self.lesson.cutter.part(self.batch, self.size, *self.bounds[self.at])

    def rest(self):
        """All that has not been handed out, at once."""
        begin = self.bounds[self.at + 1][0]
        self.bounds = [*self.bounds[: self.at + 1], (begin, self.size)]
        return self.next_part()

    def again(self, whole):
        """Begin with the same batch once more, in parts or as it came."""
        self.extra += self.at + 1
        self.serial, self.at, self.rewound = 0, -1, False
        if not whole:
            return self.next_part()
        batch = self.batch
        self.handed += 1
        self.drop()
        return batch

    def drop(self):
        self.batch = self.leaves = None
        self.bounds, self.at = [], -1


def bounds_of(size, parts, fewest, uneven):
    """Where a batch is cut; the first two parts of an uneven one differ in size."""
    parts = max(1, min(parts, size // fewest))
    edges = [size * n // parts for n in range(parts + 1)]
    if uneven and parts > 1 and edges[1] - edges[0] == edges[2] - edges[1] and edges[1] > 2 * fewest:
        edges[1] -= 1
    return [(edges[n], edges[n + 1]) for n in range(parts)]
