"""Which samples of its dataset a batch is made of: the indices that a loader has handed out, in order."""

import functools
from collections import deque

from ._patch import drop_own_frame

_AHEAD = 256  # batches that workers may have been asked for


class Samples:
    """The last batch's indices, where the dataset is one that has them."""

    def __init__(self, guard):
        self.guard = guard
        self.asked = {}  # id of an iterator -> indices of the batches that are still to come
        self.last = None
        self.count = 0  # batches that came

    def patch(self, iterator_class):
        inner = getattr(iterator_class, "_next_index", None)
        if inner is None:
            return
        asked = self.asked

        @functools.wraps(inner)
        def _next_index(iterator):
            try:
                index = inner(iterator)
            except BaseException as error:
                drop_own_frame(error)
                raise
            waiting = asked.get(id(iterator))
            if waiting is None:
                if len(asked) > 16:
                    asked.clear()
                waiting = asked[id(iterator)] = deque(maxlen=_AHEAD)
            waiting.append(index)
            return index

        iterator_class._next_index = _next_index

    def drawn(self, iterator):
        """A batch has come: it is the one that was asked for first."""
        self.count += 1
        waiting = self.asked.get(id(iterator))
        self.last = waiting.popleft() if waiting else None

    def index(self, sample, size):
        """The dataset's index of one sample of the last batch, where the batch is made of single samples."""
        last = self.last
        if isinstance(last, (list, tuple)) and sample is not None and len(last) == size:
            found = last[sample]
            return found if isinstance(found, int) else None
        return last if isinstance(last, int) and size is None else None
