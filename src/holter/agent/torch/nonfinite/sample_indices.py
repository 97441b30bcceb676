"""Which samples of its dataset a batch is made of: the indices that a loader has asked for, in order."""

import functools
import weakref
from collections import deque

from ...observe.wrap import drop_own_frame

_AHEAD = 256  # batches that workers may have been asked for


class Samples:
    """The last batch's indices, where the dataset is one that has them; worked out when they are wanted."""

    def __init__(self, guard):
        self.guard = guard
        self.asked = {}  # id of an iterator -> indices of the last batches that it asked for
        self.draws = 0  # batches that loaders have given
        self._iterator = _nothing

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
            last = asked.get(id(iterator))
            if last is None:
                if len(asked) > 16:
                    asked.clear()
                last = asked[id(iterator)] = deque(maxlen=_AHEAD)
            last.append(index)
            return index

        iterator_class._next_index = _next_index

    def drew_from(self, iterator):
        """A batch of the training has come from this iterator."""
        if self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)

    def index(self, sample, size):
        """The dataset's index of one sample of the last batch, where the batch is made of single samples."""
        last = self._last()
        if isinstance(last, (list, tuple)) and sample is not None and len(last) == size:
            found = last[sample]
            return found if isinstance(found, int) else None
        return last if isinstance(last, int) and size is None else None

    def _last(self):
        """The indices of the batch that came last: workers have been asked for more since then."""
        iterator = self._iterator()
        asked = self.asked.get(id(iterator))
        if not asked or not getattr(iterator, "_in_order", True):
            return None
        ahead = getattr(iterator, "_send_idx", 0) - getattr(iterator, "_rcvd_idx", 0)
        return asked[-1 - ahead] if 0 <= ahead < len(asked) else None


def _nothing():
    return None
