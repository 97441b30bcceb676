"""The tracing of `tf.function`s: its time as a phase, how often each was traced, and which of them train.

TensorFlow enters `_create_concrete_function` only when it really traces, so a call that finds its graph in the
cache costs nothing here.
"""

import functools
from threading import get_ident
from time import monotonic

from ...record import ring_format as f
from ..user_frame import is_user_file, user_frame
from ._patch import drop_own_frame

_PLACES = 200
_FREELY = 10  # traces of one function that are told as they come
_ASSIGNS = frozenset(("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"))


class Traces:
    """Counts traces by the line that defines the function: one made anew in a loop is still one line."""

    def __init__(self, loop):
        self.loop = loop
        self.places = {}  # place -> [count, count told, when told]
        loop.rarely.append(self.tell)

    def patch(self, tracing_compilation):
        inner = tracing_compilation._create_concrete_function
        loop, guard, note = self.loop, self.loop.guard, self._note
        enter = loop.beat.enter

        @functools.wraps(inner)
        def _create_concrete_function(*args, **kwargs):
            outermost = not loop.tracing and get_ident() == loop.thread
            before = enter(f.COMPILE) if outermost else 0
            loop.tracing += 1
            graded, applied = loop.graded, loop.applied
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
                note(args[3] if len(args) > 3 else kwargs["tracing_options"])
            except Exception as error:
                guard.caught("trace", error)
            return function

        tracing_compilation._create_concrete_function = _create_concrete_function

    def _note(self, options):
        function = options.python_function
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        code = getattr(function, "__code__", None)
        if code is None:
            return
        place = (options.name, code.co_filename, code.co_firstlineno)
        if not is_user_file(code.co_filename):
            if not getattr(function, "__module__", "").startswith("keras."):
                return  # TensorFlow's own, such as what wraps the functions of a dataset
            frame = user_frame(2)
            if frame is None:
                return
            place = (options.name, frame.f_code.co_filename, frame.f_lineno)
        if place not in self.places and len(self.places) >= _PLACES:
            return
        entry = self.places.setdefault(place, [0, 0, 0.0])
        entry[0] += 1
        self._tell(place, entry, monotonic())

    def tell(self):
        now = monotonic()
        for place, entry in self.places.items():
            if entry[0] != entry[1]:
                self._tell(place, entry, now)

    def _tell(self, place, entry, now):
        if entry[0] <= _FREELY or now - entry[2] >= 1.0:
            entry[1], entry[2] = entry[0], now
            name, file, line = place
            self.loop.say("trace", name=name, file=file, line=line, count=entry[0])


def _assigns(function):
    """True where a graph writes to variables, itself or in its loops and branches."""
    graph = function.graph
    if any(operation.type in _ASSIGNS for operation in graph.get_operations()):
        return True
    library = graph.as_graph_def().library if graph._functions else None
    return library is not None and any(n.op in _ASSIGNS for fn in library.function for n in fn.node_def)
