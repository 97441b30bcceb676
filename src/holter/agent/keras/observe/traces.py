"""The tracing of `tf.function`s: its time as a phase, how often each was traced and why, and which of them train.

TensorFlow enters `_create_concrete_function` only when it really traces, so a call that finds its graph in the
cache costs nothing here. Why: the arguments of each trace are kept as flat rows and compared with those before.
"""

import functools
import sys
import weakref
from threading import get_ident
from time import monotonic

from ....record import ring_format as f
from ...core import frame_locals
from ...core.creation_sites import site_of
from ...core.user_frame import is_user_file, user_frame
from ...observe.retraces import CLOSURE, SCALAR, SHAPE, Retraces, shortened
from ...observe.wrap import drop_own_frame

_ASSIGNS = frozenset(("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"))
_KERAS_CALLS = frozenset(
    ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch", "__call__")
)
_PRODUCTS = frozenset(("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Einsum"))
_LARGE_GRAPH = 3000  # operations
MAX_SIGNATURES = 8  # earlier traces of one line that a new one is compared with
MAX_ARGUMENTS = 64  # leaves of one signature that are looked at


class Traces:
    """Counts traces by the line that defines the function, and compares each with the ones before."""

    def __init__(self, loop):
        self.loop = loop
        self.ledger = Retraces(loop.agent)
        self.known = {}  # id of an entry -> the last signatures
        self.seen = {}  # (id of an entry, id of a thing) -> weak reference: which functions and models were traced
        self.makers = {}  # id of a function's captures -> the line that made the function
        self.compiled = {}  # id of a Keras model -> the line that compiled it last
        self.traced_seconds = 0.0  # so far
        self.operations = self.products = 0  # of the graph that is being traced, with those of the functions in it
        loop.traces = self
        loop.rarely.append(self.ledger.report)

    def made(self, function, site):
        """A `tf.function` was made on a line of the user's."""
        self._remember(self.makers, function._function_captures, site)

    def model_compiled(self, model):
        """A Keras model was compiled: its functions will be made anew."""
        self._remember(self.compiled, model, site_of(user_frame(3)))

    def patch(self, tracing_compilation):
        inner = tracing_compilation._create_concrete_function
        loop, guard, note = self.loop, self.loop.guard, self._note
        enter = loop.beat.enter

        @functools.wraps(inner)
        def _create_concrete_function(*args, **kwargs):
            outermost = not loop.tracing and get_ident() == loop.thread
            before = enter(f.COMPILE) if outermost else 0
            if not loop.tracing:
                self.operations = self.products = 0
            loop.tracing += 1
            graded, applied = loop.graded, loop.applied
            began = monotonic()
            try:
                function = inner(*args, **kwargs)
            except BaseException as error:
                drop_own_frame(error)
                raise
            finally:
                loop.tracing -= 1
                if outermost:
                    enter(before)
            try:
                if loop.graded != graded and loop.applied == applied and _assigns(function):
                    loop.assigned += 1
                self._weigh(function.graph)
                # A function within another is traced with it: its time is the outer one's.
                took = monotonic() - began if not loop.tracing else 0.0
                self.traced_seconds += took
                options = args[3] if len(args) > 3 else kwargs["tracing_options"]
                note(options, args[0] if args else kwargs["function_type"], function, took)
            except Exception as error:
                guard.caught("trace", error)
            return function

        tracing_compilation._create_concrete_function = _create_concrete_function

    def _note(self, options, function_type, concrete, took):
        found = self.whose(options.python_function)
        if found is None:
            return
        what, file, line, owner, caller = found
        if what != "keras" and took:
            # A function made anew for another model is no illness, one for the same model is: ask what it captured.
            owner = next(iter(concrete.graph.variables), None)
        entry = self.ledger.entry(what, options.name, file, line)
        if entry is None:
            return
        own = options.function_captures  # each function has one, whatever it is traced for
        new_function = own is not None and self._first_time(entry, own)
        new_owner = owner is not None and self._first_time(entry, owner)
        signature, known = signature_of(function_type), self.known.setdefault(id(entry), [])
        changed = difference(signature, known) if known else None
        if new_function and entry.count and not new_owner:
            changed = (CLOSURE, "", "")  # the same line, but another function: whatever else has changed
        known.append(signature)
        del known[:-MAX_SIGNATURES]
        maker = self.maker_of(what, owner, own)
        if took:
            entry.graph = (self.operations, self.products, len(concrete.graph.variables))
        self.ledger.note(entry, took, changed, site_of(caller), maker, new_function, new_owner)

    def whose(self, function):
        """What a function is, its file and line, the Keras model it belongs to, and the frame of the user's above."""
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        code = getattr(function, "__code__", None)
        if code is None:
            return None
        caller = user_frame(2)
        if is_user_file(code.co_filename):
            return "tf.function", code.co_filename, code.co_firstlineno, None, caller
        if caller is None or not getattr(function, "__module__", "").startswith("keras."):
            return None  # TensorFlow's own, such as what wraps the functions of a dataset
        return "keras", caller.f_code.co_filename, caller.f_lineno, _model_above(2), caller

    def maker_of(self, what, owner, captures):
        """The line that compiled a model, or made a function."""
        maker = self.compiled.get(id(owner)) if what == "keras" else self.makers.get(id(captures))
        return maker[1] if maker is not None else None

    def _weigh(self, graph):
        """Count operations, and in a large graph the products: a layer has a few, an unrolled loop many."""
        operations = graph.get_operations()
        self.operations += len(operations)
        if len(operations) >= _LARGE_GRAPH:
            self.products += sum(operation.type in _PRODUCTS for operation in operations)

    def _first_time(self, entry, thing):
        return self._remember(self.seen, thing, None, (id(entry), id(thing)))

    def _remember(self, table, thing, value, key=None):
        """Keep a value for as long as a thing lives; True when the thing was not known yet."""
        key = id(thing) if key is None else key
        known = table.get(key)
        new = known is None or known[0]() is not thing
        table[key] = (weakref.ref(thing, lambda _ref: table.pop(key, None)), value)
        return new


def _model_above(depth):
    """The Keras model whose `fit` or kin is under way above."""
    frame = user_frame(depth)
    above, walk = None, sys._getframe(depth)
    while walk is not None and walk is not frame:
        if walk.f_code.co_name in _KERAS_CALLS and "self" in walk.f_code.co_varnames[:1]:
            above = walk
        walk = walk.f_back
    return None if above is None else frame_locals.read(above, "self").get("self")


def _assigns(function):
    """True where a graph writes to variables, itself or in its loops and branches."""
    graph = function.graph
    if any(operation.type in _ASSIGNS for operation in graph.get_operations()):
        return True
    library = graph.as_graph_def().library if graph._functions else None
    return library is not None and any(n.op in _ASSIGNS for fn in library.function for n in fn.node_def)


# --- what a function was traced for, as flat rows, and what differs between two traces -------------------------------


def signature_of(function_type):
    """Each leaf of the arguments as (name, kind, value), where the value is short text or a number."""
    leaves = []
    for name, parameter in function_type.parameters.items():
        _flatten(name, parameter.type_constraint, leaves)
        if len(leaves) >= MAX_ARGUMENTS:
            break
    return tuple(leaves)


def _flatten(name, trace_type, leaves):
    if len(leaves) >= MAX_ARGUMENTS:
        return
    kind = type(trace_type).__name__
    members = _members(kind, trace_type)
    if members is not None:
        for member_name, member in members:
            _flatten("%s%s" % (name, member_name), member, leaves)
    elif kind == "Literal":
        value = trace_type.value
        # NumPy's numbers and enumerations come as themselves; what matters is that they are no tensors.
        leaves.append((name, SCALAR, shortened(value)))
    elif hasattr(trace_type, "shape") and hasattr(trace_type, "dtype"):
        leaves.append((name, SHAPE, "%s %s" % (_shape(trace_type.shape), trace_type.dtype.name)))
    elif kind == "Weakref":
        leaves.append((name, CLOSURE, "%s #%x" % (_referred(trace_type), hash(trace_type) & 0xFFFFFF)))
    else:
        leaves.append((name, "other", "%s #%x" % (kind, hash(trace_type) & 0xFFFFFF)))


def _members(kind, trace_type):
    """What a container holds, by name; None for what is none."""
    if kind == "Tuple":
        return [("[%d]" % n, one) for n, one in enumerate(trace_type.components)]
    if kind == "List":
        return [("[%d]" % n, one) for n, one in enumerate(trace_type.components_tuple.components)]
    if kind == "Dict":
        return [("[%r]" % key, one) for key, one in trace_type.mapping.items()]
    if kind in ("NamedTuple", "Attrs"):
        named = getattr(trace_type, "named_attributes", trace_type)
        values = named.attributes.components
        return [("." + key, values[n]) for n, key in enumerate(named.attribute_names[: len(values)])]
    element = getattr(trace_type, "element_spec", None)  # a dataset or its iterator
    if element is not None:
        rows = element if isinstance(element, (tuple, list)) else [element]
        return [("[%d]" % n, one) for n, one in enumerate(rows)]
    return None


def _shape(shape):
    if shape.rank is None:
        return "(unknown)"
    return "(%s)" % ", ".join("None" if size is None else str(size) for size in shape.as_list())


def _referred(trace_type):
    thing = trace_type._ref()
    return "an object" if thing is None else type(thing).__name__


def difference(new, known):
    """What differs from the nearest of the earlier signatures: (kind, argument, example), or None for nothing."""
    best = None
    for old in known:
        rows = [(old[n], new[n]) for n in range(min(len(old), len(new))) if old[n] != new[n]]
        if len(old) != len(new):
            rows.append((("arguments", "other", str(len(old))), ("arguments", "other", str(len(new)))))
        if best is None or len(rows) < len(best):
            best = rows
    if not best:
        return None
    # One batch's several tensors change together, and a tensor's shape may be what a number is made of.
    for wanted in (CLOSURE, SCALAR, SHAPE):
        for old, leaf in best:
            if leaf[1] == wanted:
                kind = wanted if old[1] == wanted else SCALAR
                value = leaf[2].partition(" #")[0] if wanted == CLOSURE else leaf[2]
                return kind, leaf[0], value
    return "other", best[0][1][0], best[0][1][2].partition(" #")[0]


# --- Compilations by XLA: what is under `jit_compile` may be traced once, but is compiled for every new shape it meets
# TensorFlow tells nobody that XLA compiles. But it does so in the call that meets the shape, and that call takes longer
# than one with a shape seen before. A function that calls such a one while it is traced is watched in its place.

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
