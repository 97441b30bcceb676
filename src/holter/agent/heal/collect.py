"""Garbage collected in time: objects that nothing refers to any more, but each other, hold memory that is running out.

Models that are built and fitted in a loop are such cycles, with all their weights and traced functions. Python looks
for them by the number of objects, not by their size: a handful of models fills the memory before it does, or for ever
where a script has turned collecting off. Near the limit it is done at once. Keeps: exact, since nothing that the
script could still reach is touched; names, counters and random streams stay as they are.
"""

import gc
from time import monotonic

from ...facts import host_memory
from ..keras.heal.graphs import let_go, still_there
from . import copy_budget as free

_WORTH = 0.02  # of it: what is given back, for which it was worth while
_PAUSE, _LONGEST = 2.0, 600.0  # seconds
_FELL = 0.75  # of what was left: when it has become so much less, no pause is kept
_WORTH_IT, _IN_VAIN = 4, 100  # times what it took, until the next


def collect_of(agent):
    """The one of this process, whichever framework comes first."""
    found = getattr(agent, "collect", None)
    if found is None:
        found = agent.collect = Collect(agent)
        agent.say("armed", act="collect")
    return found


class Collect:
    """Asked about once a second, between two steps."""

    def __init__(self, agent):
        self.agent = agent
        self.next_at = 0.0
        self.left_then = 0  # after the last time
        self.pause = _PAUSE
        self.told = False

    def look(self):
        """Collect where memory is running out; less and less often where that gives nothing back."""
        now, held, left = monotonic(), free.held(), free.left()
        if not free.near(held, left):
            return
        free.release()
        if now < self.next_at and left > _FELL * self.left_then:
            return
        self.collect(now, held, left)

    def collect(self, now, held, left):
        """At once: so much is held, and so much left."""
        graphs, given = let_all_go(), held - free.held()
        # What a graph held may stay with TensorFlow's allocator, for the next one: that is no less worth while.
        worth = given > _WORTH * (held + left) or graphs > 0
        after = free.left()
        # What some thread was just looking at is still there: where it is as near as before, the next look tries again.
        relieved = not free.near(free.held(), after)
        self.pause = (_PAUSE if relieved else 0.0) if worth else min(_LONGEST, 2 * max(_PAUSE, self.pause))
        # A collection looks at every object there is: where it gives nothing back it may take a hundredth of the time.
        took = monotonic() - now
        self.next_at = monotonic() + max(self.pause, (_WORTH_IT if worth else _IN_VAIN) * took)
        self.left_then = after or 0
        if worth and not self.told:
            self.told = True
            self._tell(given, left, graphs)

    def _tell(self, given, left, graphs):
        words = "%s were left before the limit: objects that nothing refers to any more were let go, and %s given back"
        words += ", with %d graphs whose memory is used again" % graphs if graphs > 0 else ""
        self.agent.say(
            "intervention", act="collect", keeps="exact", step=self.agent.beat.steps + 1,
            text=words % (megabytes(left), megabytes(given)), because="",
        )  # fmt: skip


def let_all_go():
    """Let go of what nothing refers to any more; returns how many graphs of TensorFlow's were among it."""
    let_go()
    graphs = still_there()
    gc.collect()
    host_memory.trim()
    return graphs - still_there()


def megabytes(n):
    return "%.0f MB" % (max(0, n) / 1e6)
