"""TensorFlow loops that the user writes: steps from `tf.function`s and eager optimizers, phases from tape and dataset.

What is patched, and why nothing gentler does:
- `Function.__call__` (a `tf.function`): its outermost call is a step when an optimizer was traced into it, and a sign
  of life when not; TensorFlow tells nobody else that it is called.
- `Function.__init__`: who made it where.
- `_create_concrete_function`: tracing as a phase, see `_tf_traces`.
- `GradientTape.__enter__`, `__exit__`, `gradient`: forward and backward of an eager step, and its loss.
- `OwnedIterator.__next__`: the time an eager loop waits for data.
- `Checkpoint.write`, `saved_model.save`: checkpoints.
All of them keep the module of what they wrap, by which AutoGraph knows that there is nothing to convert. Eager
`optimizer.apply` is the Keras adapter's: the optimizers are Keras's.
"""

import functools
import os
import sys
import weakref
from threading import get_ident

from ...record import ring_format as f
from ..census import site_of
from ..user_frame import is_user_file
from . import _patch
from ._loop import loop_of, loss_name
from ._loop_plan import LoopPlan
from ._tf_traces import Traces

WAITS_FOR = ("tensorflow",)
_BETWEEN = ("polymorphic_function.py", "deprecation.py", "tf_decorator.py")  # `tf.function` and what it makes


def install(guest, tensorflow):
    """Patch this TensorFlow; returns the reason when it is too old to be known."""
    version = tuple(int(part) for part in tensorflow.__version__.split(".")[:2])
    if version < (2, 16):
        return "TensorFlow %s is older than 2.16" % tensorflow.__version__
    adapter = _Adapter(guest, tensorflow)
    _patch.each_guarded(
        guest.guard,
        adapter.hide_own_frames,
        adapter.patch_devices,
        adapter.patch_functions,
        adapter.patch_traces,
        adapter.patch_tape,
        adapter.patch_iterator,
        adapter.patch_checkpoints,
    )
    guest.guard(guest.farewell.watch_exit_calls)()
    return None


def _module(name):
    """A part of TensorFlow that it has imported itself by now."""
    return sys.modules["tensorflow.python." + name]


class _Adapter:
    def __init__(self, guest, tensorflow):
        self.guest = guest
        self.tf = tensorflow
        self.loop = loop_of(guest)
        self.traces = Traces(self.loop)
        self.plan = LoopPlan(self.loop)
        self.drew_from = None
        self.step_functions = {}  # id -> (weak reference, "apply" or "assign", what it counts as)
        self.waiting = 0  # calls of an assigning function that are not counted yet
        self.gpus = []

    def hide_own_frames(self):
        """Leave our lines out of the stacks that TensorFlow keeps for each operation and prints in its errors."""
        tf_stack = _module("util.tf_stack")
        folder = os.path.dirname(os.path.abspath(__file__))
        ours = frozenset(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py"))
        tf_stack.EMPTY_SET = tf_stack.EMPTY_SET | ours
        for stack in tf_stack._source_filter_stacks.values():
            stack[0].update()
        inner = tf_stack.SentinelFilter.__init__

        @functools.wraps(inner)
        def __init__(sentinel):  # noqa: N807
            inner(sentinel)
            sentinel.update()

        tf_stack.SentinelFilter.__init__ = __init__

    # --- devices ------------------------------------------------------------------------------------------

    def patch_devices(self):
        self.loop.eager_tensor = _module("framework.ops").EagerTensor
        self.loop.at_begin.append(self.look_at_devices)
        self.loop.rarely.append(self.read_memory)

    def look_at_devices(self):
        """Whether reading a value is free; asked only of a runtime that the script has started itself."""
        context = _module("eager.context").context_safe()
        if context is None or not context._initialized:
            return
        kinds = [device.device_type for device in context.list_logical_devices()]
        self.loop.cpu_only = set(kinds) == {"CPU"} and not context.is_async()
        self.gpus = ["GPU:%d" % index for index in range(min(kinds.count("GPU"), 8))]

    def read_memory(self):
        if not self.loop.cpu_only and not self.gpus:
            self.look_at_devices()
        for index, name in enumerate(self.gpus):
            info = self.tf.config.experimental.get_memory_info(name)
            self.loop.beat.device(allocated=info["current"], peak=info["peak"], index=index)

    # --- tf.function --------------------------------------------------------------------------------------

    def patch_functions(self):
        function_class = _module("eager.polymorphic_function.polymorphic_function").Function
        inner = function_class.__call__
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard
        known, called, mark = self.step_functions, self._called, self._mark

        @functools.wraps(inner)
        def __call__(function, *args, **kwargs):  # noqa: N807
            outermost = not loop.busy and not loop.depth and get_ident() == loop.thread
            applied, assigned = loop.applied, loop.assigned
            if outermost:
                loop.depth = 1
                steps = beat.steps
                if id(function) in known:
                    enter(3)  # FORWARD: all of the step, since the graph can't be looked into
            try:
                result = inner(function, *args, **kwargs)
            except BaseException as error:
                if outermost and beat.phase == 3:
                    enter(1)
                _patch.drop_own_frame(error)
                raise
            finally:
                if outermost:
                    loop.depth = 0
            try:
                if loop.applied != applied or loop.assigned != assigned:
                    mark(function, "apply" if loop.applied != applied else "assign")
                if outermost:
                    called(function, args, result, steps)
            except Exception as error:
                guard.caught("tf.function", error)
            return result

        function_class.__call__ = __call__
        _patch.after(function_class, "__init__", self._function_born, guard)

    def _mark(self, function, kind):
        """Remember a function that trains, for as long as it lives."""
        if id(function) in self.step_functions:
            return
        number, known = id(function), self.step_functions
        # One `def` whose function is made anew in a loop is one source of steps, so it is known by its code.
        source = function.python_function
        while hasattr(source, "__wrapped__"):
            source = source.__wrapped__
        source = getattr(source, "__code__", source)
        known[number] = (weakref.ref(function, lambda _ref: known.pop(number, None)), kind, source)

    def _called(self, function, args, result, steps_before):
        """After the outermost call of a function: a step, or a sign of life."""
        loop = self.loop
        entry = self.step_functions.get(id(function))
        if loop.beat.steps != steps_before:
            return  # it ran eagerly, and an optimizer in it has counted
        if entry is None:
            loop.sign()
            return
        _ref, kind, source = entry
        if kind == "assign":
            # Gradients are taken and variables written, but by no optimizer in there. If one follows outside, that
            # one is the step; so the first call is counted together with the second.
            self.waiting = min(self.waiting + 1, 3)
            if loop.applied_eagerly or self.waiting == 1:
                loop.beat.enter(1)
                loop.sign()
                return
            n = 2 if self.waiting == 2 else 1
        n = n if kind == "assign" else loop.counts(source)
        if not n:
            loop.beat.enter(1)
            return
        loop.saw_batch(args)
        loss = _loss_in(result)
        if loss is not None:
            loop.saw_loss(loss)
        loop.step(n)

    def _function_born(self, function):
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
            frame = frame.f_back
        if frame is not None and is_user_file(frame.f_code.co_filename):
            self.guest.census.born("function", function, site_of(frame))

    def patch_traces(self):
        self.traces.patch(_module("eager.polymorphic_function.tracing_compilation"))

    # --- the tape -----------------------------------------------------------------------------------------

    def patch_tape(self):
        tape_class = _module("eager.backprop").GradientTape
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard
        inner_enter, inner_exit, inner = tape_class.__enter__, tape_class.__exit__, tape_class.gradient

        @functools.wraps(inner_enter)
        def __enter__(tape):  # noqa: N807
            if not loop.tracing and get_ident() == loop.thread and beat.phase < 3:
                enter(3)  # FORWARD, from START, OTHER or DATA
            return inner_enter(tape)

        @functools.wraps(inner_exit)
        def __exit__(tape, *args):  # noqa: N807
            if beat.phase == 3 and not loop.busy and not loop.tracing and get_ident() == loop.thread:
                enter(1)
            return inner_exit(tape, *args)

        @functools.wraps(inner)
        def gradient(tape, *args, **kwargs):
            before = -1
            if loop.tracing:
                loop.graded += 1
            elif get_ident() == loop.thread:
                before = enter(4)  # BACKWARD
            try:
                result = inner(tape, *args, **kwargs)
            except BaseException as error:
                _patch.drop_own_frame(error)
                raise
            finally:
                if before >= 0:
                    enter(before or 1)
            if before >= 0 and not loop.busy:
                try:
                    loop.saw_loss(args[0] if args else kwargs.get("target"))
                    if not loop.optimizers and not loop.depth:
                        loop.step()  # the script updates its variables by itself
                except Exception as error:
                    guard.caught("gradient", error)
            return result

        tape_class.__enter__, tape_class.__exit__, tape_class.gradient = __enter__, __exit__, gradient

    # --- data and checkpoints -----------------------------------------------------------------------------

    def patch_iterator(self):
        iterator_class = _module("data.ops.iterator_ops").OwnedIterator
        inner = iterator_class.__next__
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard

        adapter, plan = self, self.plan

        @functools.wraps(inner)
        def __next__(iterator):  # noqa: N807
            before = beat.phase
            if loop.busy or loop.tracing or before == 6 or get_ident() != loop.thread:  # VALIDATION
                before = -1
            else:
                enter(2)  # DATA
            try:
                element = inner(iterator)
            except BaseException as error:
                if before >= 0 and error.__class__ is StopIteration:
                    guard(plan.pass_ended)()
                _patch.drop_own_frame(error)
                raise
            finally:
                if before >= 0:
                    enter(before)
            if before >= 0:
                try:
                    loop.saw_batch(element)
                    if adapter.drew_from != id(iterator):
                        adapter.drew_from = id(iterator)
                        plan.pass_begins()
                except Exception as error:
                    guard.caught("batch", error)
            return element

        iterator_class.__next__ = __next__

    def patch_checkpoints(self):
        _patch.timed(self.tf.train.Checkpoint, "write", self.loop.beat, f.CHECKPOINT, self.loop.mine)
        _patch.timed(self.tf.train.Checkpoint, "save", self.loop.beat, f.CHECKPOINT, self.loop.mine)


def _loss_in(result):
    """The loss among what a step function returns: the value itself, `loss` of a dict, or the first of a tuple."""
    while result.__class__ in (tuple, list) and result:
        result = result[0]
    if isinstance(result, dict):
        name = loss_name(result)
        result = result[name] if name is not None else None
    return result
