"""Compilations by XLA: what is under `jit_compile` may be traced once, but is compiled for every new shape it meets.

TensorFlow tells nobody that XLA compiles. But it does so in the call that meets the shape, and that call takes longer
than one with a shape seen before. A function that calls such a one while it is traced is watched in its place.
"""

import sys
import weakref
from threading import get_ident
from time import monotonic

from ...core.creation_sites import site_of
from ...observe.retraces import SHAPE
from .traces import MAX_ARGUMENTS, MAX_SIGNATURES, difference

_MAX_SHAPES = 4096  # of one function
_MIN_COMPILE_SECONDS = 0.01  # beyond a usual call: no compilation takes less
_SLOW_SECONDS, _SLOW_TIMES = 0.05, 1.5  # a call that takes so long, and so many times the usual


class _Compiled:
    """One function under XLA: the shapes that it has met, and how long a call takes that meets none."""

    def __init__(self, ref, drawn):
        self.ref = ref
        self.drawn = drawn
        self.last = None
        self.seen = {}  # hashes of shapes, the oldest first
        self.named = []
        self.count = 0
        self.calls, self.spent = 0, 0.0  # with shapes that were seen before

    @property
    def usual(self):
        return self.spent / self.calls if self.calls else 0.0

    def as_usual(self, seconds):
        self.calls += 1
        self.spent += seconds

    def is_new(self, shapes):
        """True the first time; the oldest shapes are forgotten in the end."""
        key = hash(shapes)
        if key in self.seen:
            return False
        self.seen[key] = None
        if len(self.seen) > _MAX_SHAPES:
            del self.seen[next(iter(self.seen))]
        return True


class XlaCompiles:
    """Notes a compilation with the ledger of traces, where a call has met a new shape and took long."""

    def __init__(self, traces):
        self.traces = traces
        self.loop = traces.loop
        self.known = {}  # id of a function -> _Compiled
        self.inner = 0  # calls of functions under XLA within what was traced so far

    def ran(self, function, args, kwargs, began, traced):
        """After a call of a function that is under XLA or has such a one inside."""
        loop = self.loop
        if loop.tracing:
            self.inner += 1
            return
        if get_ident() != loop.thread:
            return
        tracing = self.traces.traced_seconds - traced
        seconds = monotonic() - began - tracing
        one = self.known.get(id(function)) or self._meet(function)
        iterator = next((a for a in args if hasattr(a, "element_spec")), None) if one.drawn else None
        if iterator is not None:
            slow = seconds >= _SLOW_SECONDS and seconds >= _SLOW_TIMES * one.usual
            if one.drawn.idle(iterator, slow):
                if one.calls:
                    one.as_usual(seconds)
                return
            shapes = one.drawn.batch(iterator)
            if shapes is None:
                return
        else:
            shapes = shapes_of(args, kwargs)
        if shapes == one.last or not one.is_new(shapes):
            if not tracing:
                one.as_usual(seconds)
        elif seconds - one.usual >= _MIN_COMPILE_SECONDS:
            self._note(function, one, iterator, args, kwargs, shapes, seconds - one.usual)
        one.last = shapes

    def _meet(self, function):
        number, known = id(function), self.known
        ref = weakref.ref(function, lambda _ref: known.pop(number, None))
        drawn = None if getattr(function, "_jit_compile", None) else DrawnBatches(sys.modules["tensorflow"])
        one = known[number] = _Compiled(ref, drawn)
        return one

    def _note(self, function, one, iterator, args, kwargs, shapes, seconds):
        eager = sys.modules.get("tensorflow.python.eager.polymorphic_function.eager_function_run")
        found = self.traces.whose(function.python_function)
        if found is None or getattr(eager, "RUN_FUNCTIONS_EAGERLY", False):
            return
        what, file, line, owner, caller = found
        entry = self.traces.ledger.entry(what, function._name, file, line, jit=True)
        if entry is None:
            return
        if iterator is not None:
            size = one.drawn.met_new(shapes)
            changed = (SHAPE, "", size) if one.count else None
        else:
            named = shapes_named(function.python_function, args, kwargs)
            changed = (difference(named, one.named) or (SHAPE, "", "")) if one.count else None
            one.named.append(named)
            del one.named[:-MAX_SIGNATURES]
        one.count += 1
        entry.usual, entry.draws = one.usual, iterator is not None
        maker = self.traces.maker_of(what, owner, function._function_captures)
        self.traces.ledger.note(entry, seconds, changed, site_of(caller), maker, new_function=one.count == 1)


# --- How large the batches are that a traced step draws by itself, from an iterator that it is handed
# Keras's `fit` draws its data inside the step, so nobody outside sees their shapes. But tf.data's own model of the
# pipeline counts the elements and bytes that came out of it: between two steps, the bytes of one batch. Asking costs
# a fraction of a millisecond, so it is done while sizes are new, and after a step that took long.

_MAX_LOOKS = 20  # at sizes that were seen before, until there is no more asking


class DrawnBatches:
    """What one function has drawn so far."""

    def __init__(self, tensorflow):
        self.tf = tensorflow
        self.pipeline = None
        self.varies = self.refused = False
        self.elements = self.bytes = 0
        self.fresh = True  # nothing was drawn since the last look but by the step that is over
        self.looks = _MAX_LOOKS

    def idle(self, iterator, slow):
        """True where there is nothing to ask: sizes that can't change, or have not for long."""
        if self.pipeline != id(iterator):
            self.pipeline = id(iterator)  # each epoch has its own
            self.varies = _varies(self.tf.nest.flatten(iterator.element_spec))
            self.elements = self.bytes = 0
            self.fresh = True
        if self.varies and not self.refused and (self.looks or slow):
            return False
        self.fresh = False
        return True

    def batch(self, iterator):
        """What the step has drawn, as something that can be compared; None where that can't be known."""
        counted = self._read(iterator)
        if counted is None:
            return None
        if counted[0] < self.elements:
            self.elements = self.bytes = 0  # another pipeline at the same address
        elements, size = counted[0] - self.elements, counted[1] - self.bytes
        (self.elements, self.bytes), fresh, self.fresh = counted, self.fresh, True
        self.looks = max(0, self.looks - 1) if fresh else _MAX_LOOKS
        return (elements, size) if fresh and elements else None

    def _read(self, iterator):
        try:
            if sys.modules["tensorflow.python.eager.context"].context().is_async():
                return None  # asking would wait for what is under way
            model = self.tf.data.experimental.get_model_proto(iterator)
        except Exception:
            self.refused = True  # autotuning is off, as for a `PyDataset`: there is no such model
            return None
        root = model.nodes[model.output]
        return root.num_elements, root.bytes_produced

    def met_new(self, batch):
        """A batch was not seen before: its size as a text, and more will be asked for."""
        self.looks = _MAX_LOOKS
        return "%d bytes" % batch[1]


def _varies(specs):
    """True where a dimension is open besides the batch's own."""
    for spec in specs:
        shape = getattr(spec, "shape", None)
        if shape is not None and (shape.rank is None or None in shape.as_list()[1:]):
            return True
    return False


# --- the shapes of what a function is called with --------------------------------------------------------------------


def shapes_of(args, kwargs):
    """The shapes of all tensors and arrays in a call, in their order; asked at every call under XLA."""
    found = _arrays((), (args, kwargs) if kwargs else args)
    # TensorFlow's own tuple is there without making an object of its shapes.
    return tuple(one._shape_tuple() if hasattr(one, "_shape_tuple") else tuple(one.shape) for _, one in found)


def shapes_named(function, args, kwargs):
    """The same as rows of a signature, by the names of the function's arguments."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    names = [names[n] if n < len(names) else "argument %d" % n for n in range(len(args))]
    rows = []
    for path, thing in _arrays((), {**dict(zip(names, args)), **kwargs}):  # noqa: B905
        kind = getattr(thing.dtype, "name", str(thing.dtype))
        name = path[0] + "".join("[%r]" % key for key in path[1:])
        rows.append((name, SHAPE, "(%s) %s" % (", ".join(str(size) for size in thing.shape), kind)))
    return tuple(rows[:MAX_ARGUMENTS])


def _arrays(path, thing):
    """The tensors and arrays in nested containers, each with the keys that lead to it."""
    if isinstance(thing, (tuple, list)):
        for n, one in enumerate(thing[:MAX_ARGUMENTS]):
            yield from _arrays((*path, n), one)
    elif isinstance(thing, dict):
        for key, one in thing.items():
            yield from _arrays((*path, key), one)
    elif hasattr(thing, "_shape_tuple") or _is_array(thing):
        yield path, thing


def _is_array(thing):
    shape = getattr(thing, "shape", None)
    return shape is not None and hasattr(thing, "dtype") and getattr(shape, "rank", 0) is not None
