"""One pass over a loader whose batches are handed out in parts: the batch in hand, and the place in it."""


class Course:
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
