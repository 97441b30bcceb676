"""Garbage collected in time: objects that nothing refers to any more, but each other, hold memory that is running out.

Models that are built and fitted in a loop are such cycles, with all their weights and traced functions. Python looks
for them by the number of objects, not by their size: a handful of models fills the memory before it does, or for ever
where a script has turned collecting off. Near the limit it is done at once. Keeps: exact, since nothing that the
script could still reach is touched; names, counters and random streams stay as they are.
"""

import gc
import sys
import weakref
from time import monotonic

from ...facts import host_memory
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


# --- TensorFlow's registry of gradients lets go of graphs that nothing else refers to
# A function with a gradient of its own is entered there under a new name each time it is traced, and never taken out;
# Keras's optimizers trace one for each model. The entry holds the graph, the graph holds the weights: of every model
# that was ever fitted, `clear_session` or not. Here the gradient is moved to the graph that it belongs to, and the
# registry keeps a reference to it. As long as a graph lives it is found as before; with the graph it is gone, and
# nobody can ask for it.

_TRACED_PREFIX = "CustomGradient-"
_MAX_DEPTH = 3


def let_go():
    """Move what has been entered since the last time; returns how many graphs that concerns."""
    moved, entries = 0, _entries()
    for name, entry in list(entries.items()):
        if name.startswith(_TRACED_PREFIX) and not isinstance(entry.get("type"), _GraphsOwn):
            graph = _graph_of(entry["type"], _MAX_DEPTH)
            if graph is not None:
                entry["type"] = _GraphsOwn(graph, name, entry["type"], entries)
                moved += 1
    return moved


def still_there():
    """How many graphs the registry refers to weakly."""
    return sum(isinstance(entry.get("type"), _GraphsOwn) for entry in _entries().values())


def _entries():
    ops = sys.modules.get("tensorflow.python.framework.ops")
    found = getattr(getattr(ops, "gradient_registry", None), "_registry", None)
    return found if isinstance(found, dict) else {}


class _GraphsOwn:
    """Stands in the registry for a gradient that its graph keeps."""

    def __init__(self, graph, name, gradient, entries):
        self.name = name
        kept = getattr(graph, "_holter_gradients", None)
        if kept is None:
            kept = graph._holter_gradients = {}
        kept[name] = gradient
        self.graph = weakref.ref(graph, lambda _ref: entries.pop(name, None))

    def __call__(self, operation, *gradients):
        return self.graph()._holter_gradients[self.name](operation, *gradients)


def _graph_of(function, depth):
    """The graph of the tensors that a gradient function was made with; None for one of no single function's."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        for one in value if isinstance(value, (list, tuple)) else (value,):
            graph = getattr(one, "graph", None)
            if type(graph).__name__ == "FuncGraph":
                return graph
        if depth and callable(value):
            found = _graph_of(value, depth - 1)
            if found is not None:
                return found
    return None
