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
from . import copy_budget as budget

_WORTH_SHARE = 0.02  # of memory: what is given back, for which it was worth while
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 2.0, 600.0
_FELL_SHARE = 0.75  # of what was free: when it has become so much less, no pause is kept
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
        self.free_then = 0  # after the last time
        self.pause = _PAUSE_SECONDS
        self.reported = False

    def look(self):
        """Collect where memory is running out; less and less often where that gives nothing back."""
        now, held, free = monotonic(), budget.held(), budget.free()
        if not budget.near(held, free):
            return
        budget.release()
        if now < self.next_at and free > _FELL_SHARE * self.free_then:
            return
        self.collect(now, held, free)

    def collect(self, now, held, free):
        """At once: so much is held, and so much is free."""
        graphs, given = let_all_go(), held - budget.held()
        # What a graph held may stay with TensorFlow's allocator, for the next one: that is no less worth while.
        worth = given > _WORTH_SHARE * (held + free) or graphs > 0
        after = budget.free()
        # What some thread was just looking at is still there: where it is as near as before, the next look tries again.
        relieved = not budget.near(budget.held(), after)
        self.pause = (
            (_PAUSE_SECONDS if relieved else 0.0)
            if worth
            else min(_MAX_PAUSE_SECONDS, 2 * max(_PAUSE_SECONDS, self.pause))
        )
        # A collection looks at every object there is: where it gives nothing back it may take a hundredth of the time.
        took = monotonic() - now
        self.next_at = monotonic() + max(self.pause, (_WORTH_IT if worth else _IN_VAIN) * took)
        self.free_then = after or 0
        if worth and not self.reported:
            self.reported = True
            self._report(given, free, graphs)

    def _report(self, given, free, graphs):
        words = "%s were free before the limit: unreferenced objects were collected, and %s given back"
        words += ", with %d graphs whose memory is used again" % graphs if graphs > 0 else ""
        self.agent.say(
            "intervention", act="collect", keeps="exact", step=self.agent.beat.steps + 1,
            text=words % (megabytes(free), megabytes(given)), because="",
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
