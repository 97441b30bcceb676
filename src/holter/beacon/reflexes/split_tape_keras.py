"""Split the batch of a loop with a tape (TensorFlow): a `tf.function` that does not fit is run in parts, updated once.

It stands around the calls of each `tf.function` in which an optimizer of Keras' was met. A call that runs out of memory
is made again in parts along the batch (`_tape_parts_keras`). On a CPU there is no error to catch: a batch larger than
all before is first judged by the size of its graph, then by what two small parts take. Keeps: exact, or equivalent with
BatchNormalization or random numbers. What can't be split is declined with the reason. An eager loop has no such call.
"""

import functools
import weakref
from contextlib import contextmanager
from threading import get_ident

from ._leaves import Unsplittable
from ._step_keras import put_back, untold
from ._tape_parts_keras import Arguments, TapeParts
from ._tryout_keras import Growth, foretell, unseen

_PROVEN = 5  # calls after which one of this size is not expected to fail
_NOT_LOOKED_INTO = {"While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall"}
_TAKES_NOTHING = {
    "Placeholder", "ReadVariableOp", "Const", "Identity", "IdentityN", "Reshape", "Shape", "Squeeze", "ExpandDims",
    "StopGradient", "VarHandleOp",
}  # fmt: skip
_HEARD = {"PrintV2", "PyFunc", "PyFuncStateless", "EagerPyFunc"}
_SHAPES = 10_000


class TapeSplit:
    """Stands around `Function._call`."""

    def __init__(self, split, hold):
        self.split, self.hold = split, hold
        self.loop, self.tf = split.loop, split.tf
        self.steps = {}  # by function
        self.within = False

    def patch(self, function_class):
        inner = function_class._call
        loop, eagerly, steps = self.loop, self.tf.executing_eagerly, self.steps

        @functools.wraps(inner)
        def _call(function, *args, **kwargs):
            if self.within or loop.in_fit or loop.busy or get_ident() != loop.thread or not eagerly():
                return inner(function, *args, **kwargs)
            step = steps.get(id(function)) or self._meet(function, inner)
            if step.is_left_alone:
                return inner(function, *args, **kwargs)
            self.within = True
            try:
                return step.call(function, args, kwargs)
            finally:
                self.within = False

        function_class._call = _call

    def _meet(self, function, inner):
        number, steps = id(function), self.steps
        user_function = weakref.ref(function, lambda _ref: steps.pop(number, None))
        step = steps[number] = Step(self, function, inner, user_function)
        return step


class Step:
    """One function, and what is known of its memory."""

    model = None

    def __init__(self, whole, function, inner, user_function):
        self.whole, self.split, self.tf, self.inner = whole, whole.split, whole.tf, inner
        self.user_function = user_function
        self.autograph = self.tf.__internal__.autograph.control_status_ctx()  # outside of what is never converted
        self.name = getattr(function.python_function, "__name__", "step")
        self.is_left_alone = self.trains = False
        self.asked = self.split.asked
        self.rows = self.told = 0
        self.words = "would not fit"
        self.shapes, self.met = None, set()  # of the last call, and of all
        self.growth, self.went = Growth(), 0
        self.changing, self.parts = [], None
        self.jit = getattr(function, "_jit_compile", None)

    # --- a call -------------------------------------------------------------------------------------------

    def call(self, function, args, kwargs):
        shapes = [getattr(leaf, "shape", None) for leaf in self.tf.nest.flatten((args, kwargs))]
        if shapes != self.shapes:
            self.shapes = shapes
            self._meet(function, args, kwargs)
            if self.is_left_alone:
                return self.inner(function, *args, **kwargs)
        if self.rows:
            done = self._in_parts(args, kwargs, None)
            if done is not None:
                return done[0]
        before = [(v, self.tf.identity(v)) for v in self.changing] if self.went < _PROVEN else []
        try:
            result = self.inner(function, *args, **kwargs)
        except Exception as error:
            if self.is_left_alone or not self.split.is_oom(error):
                raise
            failed = error
        else:
            self.went += 1
            return result
        put_back(before)
        # The frames of the failed attempt hold its tensors: they go with the traceback.
        failed.__traceback__ = failed.__context__ = None
        return self._in_parts(args, kwargs, failed)[0]

    def _in_parts(self, args, kwargs, failed):
        """What the call returns, in a tuple; None where it is small enough or can't be cut, and has not failed yet."""
        try:
            pieces = Arguments(self.tf, args, kwargs)
            if failed is not None:
                self.rows = max(1, -(-min(pieces.size, self.rows or pieces.size) // 2))
            if pieces.size <= self.rows:
                return None
            if self.parts is None or not self.parts.form.is_like(pieces.form):
                self.parts = TapeParts(self, pieces)
            result = self.parts.run(pieces)
        except Exception as error:
            self._give_up(error)
            if failed is not None:
                raise failed from None
            return None
        self.split.tell_split(self, pieces.size, "did not fit" if failed is not None else self.words)
        return (result,)

    def _give_up(self, error):
        """It is left to itself from here on."""
        why = str(error)
        if self.split.is_oom(error):
            why = "a single sample does not fit"
        elif not isinstance(error, Unsplittable):
            self.split.guest.guard.caught("in parts", error)
            why = "a part failed (%s)" % type(error).__name__
        self.is_left_alone, self.rows, self.parts, self.changing = True, 0, None, []
        self.split.tell_declined(self.name, why)

    # --- before a call of another size --------------------------------------------------------------------

    def _meet(self, function, args, kwargs):
        """A call with other shapes than the one before; loops may come back to those of before that."""
        key = tuple(None if shape is None else tuple(shape) for shape in self.shapes)
        if key in self.met:
            return
        if len(self.met) >= _SHAPES:
            self.met.clear()
        self.met.add(key)
        self.went = 0
        self._look_ahead(function, args, kwargs)

    def _look_ahead(self, function, args, kwargs):
        """Know what it writes, and whether it will fit."""
        applied = self.whole.loop.applied
        # The call to come would trace the same; what the public way gives is never let go.
        trace = getattr(function, "_get_concrete_function_garbage_collected", function.get_concrete_function)
        try:
            concrete = trace(*args, **kwargs)
        except Exception:  # the call to come will tell of it
            self.is_left_alone = True
            return
        self.trains = self.trains or self.whole.loop.applied != applied
        if not self.trains or self.tf.distribute.has_strategy():
            self.is_left_alone = True
            return
        try:
            self._learn(concrete.graph, args, kwargs)
        except Exception as error:
            if self.asked:
                self._give_up(error)
            elif not isinstance(error, Unsplittable):  # it may fit all the same
                self.split.guest.guard.caught("look ahead", error)

    def _learn(self, graph, args, kwargs):
        own = {id(getattr(v, "_value", v)) for one in self.whole.hold.optimizers for v in one.variables}
        self.changing = [v for v in graph.variables if not v.trainable and id(v) not in own]
        pieces = Arguments(self.tf, args, kwargs)
        if self.asked and not self.rows:
            self.rows = -(-pieces.size // self.asked)
        elements = sum(int(self.tf.size(tensor)) for tensor in pieces.tensors)
        if self.rows or not self.split.dies_without_a_word() or not self.growth.exceeds(elements) or _is_heard(graph):
            return
        need = _bytes_of(graph, pieces.size, elements)
        _calm, rows, words, parts = foretell(pieces, need, lambda: TapeParts(self, pieces))
        if rows:
            self.rows, self.words, self.parts = rows, words, parts

    # --- for its parts ------------------------------------------------------------------------------------

    def body(self):
        """What the user wrote, for our own functions to trace; not held, since it may hold the user's function."""
        function = self.user_function()
        body = function.python_function
        # What stands around a method was given its converted form when the whole was traced, and asks what is on now.
        if not getattr(function, "_autograph", True) or hasattr(body, "_tf_decorator"):
            return body
        return self.tf.__internal__.autograph.tf_convert(body, self.autograph)

    def function(self, body):
        return untold(self.tf, body, jit_compile=self.jit)

    @contextmanager
    def noting(self, noted):
        """As the user would call it, but the optimizers are told of updates, and make none."""
        self.whole.hold.note(noted)
        try:
            with self.autograph:
                yield
        finally:
            self.whole.hold.note(None)

    def keeps(self):
        return ("exact", "") if self.parts.exact else ("equivalent", self.parts.because)


def _is_heard(graph):
    """Whether a step that is tried out would print or write something."""
    return any(operation.type in _HEARD or "Summary" in operation.type for operation in graph.get_operations())


def _bytes_of(graph, size, elements):
    """All that a graph makes, as if nothing of it were ever freed."""
    total = 0
    for operation in graph.get_operations():
        if operation.type in _NOT_LOOKED_INTO:
            total += unseen(elements)
        elif operation.type not in _TAKES_NOTHING:
            for output in operation.outputs:
                total += _size_of(output, size)
    return total


def _size_of(output, size):
    found = max(1, output.dtype.size)
    for n in output.shape if output.shape.rank else ():
        found *= size if n is None else n
    return found
