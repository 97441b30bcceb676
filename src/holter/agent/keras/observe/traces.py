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
        loop.rarely.append(self.ledger.tell)

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
