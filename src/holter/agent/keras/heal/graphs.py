"""TensorFlow's registry of gradients lets go of graphs that nothing else refers to.

A function with a gradient of its own is entered there under a new name each time it is traced, and never taken out;
Keras's optimizers trace one for each model. The entry holds the graph, the graph holds the weights: of every model that
was ever fitted, `clear_session` or not. Here the gradient is moved to the graph that it belongs to, and the registry
keeps a reference to it. As long as a graph lives it is found as before; with the graph it is gone, and nobody can ask
for it.
"""

import sys
import weakref

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
