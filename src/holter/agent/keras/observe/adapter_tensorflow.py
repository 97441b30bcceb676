"""TensorFlow loops that the user writes: steps from `tf.function`s and eager optimizers, phases from tape and dataset.

What is patched, and why nothing gentler does:
- `Function.__call__` and `__init__` (a `tf.function`): TensorFlow tells nobody else that one is made or called.
- `_create_concrete_function`: tracing as a phase, see `traces`.
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
from math import prod
from threading import get_ident
from time import monotonic

from ....record import ring_format as f
from ...core.creation_sites import site_of
from ...core.user_frame import is_user_file
from ...observe import wrap
from ...torch.observe.schedule import loops_around
from .. import retained
from .feed import Feed
from .loop import loop_of, loss_name
from .traces import Traces, XlaCompiles

_AGENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

WAITS_FOR = ("tensorflow",)


def install(agent, tensorflow):
    """Patch this TensorFlow; returns the reason when it is too old to be known."""
    version = tuple(int(number) for number in tensorflow.__version__.split(".")[:2])
    if version < (2, 16):
        return "TensorFlow %s is older than 2.16" % tensorflow.__version__
    adapter = _Adapter(agent, tensorflow)
    wrap.each_guarded(
        agent.guard,
        adapter.hide_own_frames,
        adapter.patch_devices,
        adapter.patch_functions,
        adapter.patch_traces,
        adapter.patch_tape,
        adapter.patch_iterator,
        adapter.patch_feed,
        adapter.patch_checkpoints,
        lambda: retained.join(agent, _module),
    )
    agent.guard(agent.exit_hooks.watch_exit_calls)()
    return None


def _module(name):
    """A module of TensorFlow's that it has imported itself by now."""
    return sys.modules["tensorflow.python." + name]


class _Adapter:
    def __init__(self, agent, tensorflow):
        self.agent = agent
        self.tf = tensorflow
        self.loop = loop_of(agent)
        self.traces = Traces(self.loop)
        self.plan = LoopPlan(self.loop)
        self.drew_from = None
        self.gpus = []

    def hide_own_frames(self):
        """Leave our lines out of the stacks that TensorFlow keeps for each operation and prints in its errors."""
        tf_stack = _module("util.tf_stack")
        ours = frozenset(
            os.path.join(folder, name) for folder, _, names in os.walk(_AGENT) for name in names if name.endswith(".py")
        )
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

    # --- functions and their traces -----------------------------------------------------------------------

    def patch_functions(self):
        polymorphic = _module("eager.polymorphic_function.polymorphic_function")
        Functions(self.agent, self.loop).patch(polymorphic.Function)

    def patch_traces(self):
        self.traces.patch(_module("eager.polymorphic_function.tracing_compilation"))

    # --- the tape -----------------------------------------------------------------------------------------

    def patch_tape(self):
        tape_class = _module("eager.backprop").GradientTape
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard
        inner_enter, inner_exit, inner = tape_class.__enter__, tape_class.__exit__, tape_class.gradient

        @functools.wraps(inner_enter)
        def __enter__(tape):  # noqa: N807
            if beat.skim:
                beat.skim -= 1
            elif beat.phase < 3 and not loop.tracing and get_ident() == loop.thread:
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
            ours = False
            if loop.tracing:
                loop.graded += 1
            elif get_ident() == loop.thread:
                ours = not loop.busy
                if beat.skim:
                    beat.skim -= 1
                else:
                    before = enter(4)  # BACKWARD
            try:
                result = inner(tape, *args, **kwargs)
            except BaseException as error:
                wrap.drop_own_frame(error)
                raise
            finally:
                if before >= 0:
                    enter(before or 1)
            if ours:
                try:
                    loop.saw_loss(args[0] if args else kwargs.get("target"))
                    if loop.loss_known:
                        sources = args[1] if len(args) > 1 else kwargs.get("sources")
                        loop.nan.loss(loop.loss, "tensorflow", sources)
                        if loop.cpu_only:
                            loop.nan.gradients(result, sources)
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
            before = -1
            ours = not loop.busy and not loop.tracing and beat.phase != 6 and get_ident() == loop.thread
            if ours:  # VALIDATION is over the loop's own data
                if beat.skim:
                    beat.skim -= 1
                else:
                    before = enter(2)  # DATA
            try:
                element = inner(iterator)
            except BaseException as error:
                if ours and error.__class__ is StopIteration:
                    adapter.drew_from = None  # the next pass may get an iterator at the same address
                    guard(plan.pass_ended)()
                wrap.drop_own_frame(error)
                raise
            finally:
                if before >= 0:
                    enter(before)
            if ours and (before >= 0 or adapter.drew_from != id(iterator)):
                try:
                    if adapter.drew_from != id(iterator):
                        adapter.drew_from = id(iterator)
                        plan.pass_begins()
                    loop.saw_batch(element)
                except Exception as error:
                    guard.caught("batch", error)
            return element

        iterator_class.__next__ = __next__

    def patch_feed(self):
        feed = Feed(self.loop, self.tf)
        feed.patch()
        self.loop.feed = feed

    def patch_checkpoints(self):
        wrap.timed(self.tf.train.Checkpoint, "write", self.loop.beat, f.CHECKPOINT, self.loop.mine)
        wrap.timed(self.tf.train.Checkpoint, "save", self.loop.beat, f.CHECKPOINT, self.loop.mine)


# --- `tf.function`s as they are called: a step where an optimizer was traced into one, a sign of life where not
# Only the outermost call counts, and none within Keras's `fit`.

_FUNCTION_FILES = ("polymorphic_function.py", "deprecation.py", "tf_decorator.py")  # `tf.function` and what it makes


class Functions:
    """Knows which functions train, and counts their calls."""

    def __init__(self, agent, loop):
        self.agent = agent
        self.loop = loop
        self.xla = XlaCompiles(loop.traces)
        self.step_functions = {}  # id -> (weak reference, "apply" or "assign", what it counts as)
        self.waiting = 0  # calls of an assigning function that are not counted yet

    def patch(self, function_class):
        inner = function_class.__call__
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard
        known, called, mark = self.step_functions, self._called, self._mark
        traces, xla = loop.traces, self.xla

        @functools.wraps(inner)
        def __call__(function, *args, **kwargs):  # noqa: N807
            outermost = not loop.depth and not loop.busy and get_ident() == loop.thread
            applied, assigned = loop.applied, loop.assigned
            began, traced, within = monotonic(), traces.traced_seconds, xla.inner
            if outermost:
                loop.depth = 1
                steps = beat.steps
                if beat.skim:
                    beat.skim -= 1
                elif id(function) in known:
                    enter(3)  # FORWARD: all of the step, since the graph can't be looked into
            try:
                result = inner(function, *args, **kwargs)
            except BaseException as error:
                if outermost and beat.phase == 3:
                    enter(1)
                wrap.drop_own_frame(error)
                raise
            finally:
                if outermost:
                    loop.depth = 0
            try:
                if loop.applied != applied or loop.assigned != assigned:
                    mark(function, "apply" if loop.applied != applied else "assign")
                if outermost:
                    called(function, args, result, steps)
                if getattr(function, "_jit_compile", None) or xla.inner != within or id(function) in xla.known:
                    xla.ran(function, args, kwargs, began, traced)
            except Exception as error:
                guard.caught("tf.function", error)
            return result

        function_class.__call__ = __call__
        wrap.after(function_class, "__init__", self._function_born, guard)

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
        if not loop.beat.skim:
            loop.saw_batch(args)
        if result.__class__ is not loop.eager_tensor:
            result = _loss_in(result)
        if result is not None:
            loop.saw_loss(result)
            if loop.loss_known:
                loop.nan.loss(loop.loss, "tensorflow")
        loop.step(n)

    def _function_born(self, function):
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(_FUNCTION_FILES):
            frame = frame.f_back
        if frame is not None and is_user_file(frame.f_code.co_filename):
            self.agent.census.born("function", function, site_of(frame))
            if self.loop.traces is not None:
                self.loop.traces.made(function, site_of(frame))


def _loss_in(result):
    """The loss among what a step function returns: the value itself, `loss` of a dict, or the first of a tuple."""
    while result.__class__ in (tuple, list) and result:
        result = result[0]
    if isinstance(result, dict):
        name = loss_name(result)
        result = result[name] if name is not None else None
    return result


# --- How many steps a TensorFlow loop of the user's means to take: the `range`s around it, and how long a pass was


class LoopPlan:
    """Counts the passes over datasets that training draws from, and looks for the loops around a step."""

    def __init__(self, loop):
        self.loop = loop
        self.looked = False
        self.from_dataset = False  # a pass over a dataset is an epoch, else the loops say all there is
        self.epoch = self.epochs = self.steps = 0
        self.first_step = 0  # of the loop that is planned
        self.planned = 0  # the step at which it will be done
        self.pass_began = 0
        loop.rarely.append(self.look)

    def pass_begins(self):
        """A dataset gives its first batch to a loop of the user's: an epoch, if a step follows."""
        self.pass_began = self.loop.beat.steps
        self.loop.before_step = self._trains
        self.from_dataset = True

    def _trains(self):
        beat = self.loop.beat
        if self.planned and beat.steps >= self.planned:
            self.looked, self.planned, self.epoch, self.first_step = False, 0, 0, beat.steps  # another loop
        self.epoch += 1
        beat.new_epoch(self.epoch)
        self.loop.say("epoch", epoch=self.epoch, step=beat.steps)

    def pass_ended(self):
        """A dataset is exhausted: if steps were taken, they are what an epoch has."""
        length = self.loop.beat.steps - self.pass_began
        if length > 0 and self.epoch == 1:
            self.look()
            self._report(per_epoch=length)

    def look(self):
        """After a step: the lengths of the loops around it, unless Keras's own `fit` runs it."""
        loop = self.loop
        if self.looked or not loop.beat.steps or loop.in_fit:
            return
        self.looked = True
        frame = sys._getframe(1)
        loops = loops_around(frame)
        if self.from_dataset:
            # `zip(range(steps), dataset)` is the loop over the dataset itself: its number is one of steps.
            unzipped = loops_around(frame, zipped=False)
            outer = unzipped[:-1] if unzipped and not unzipped[-1] else unzipped
            self.epochs = prod(outer) if outer else 0
            self.steps = prod(loops) if unzipped != loops else 0
            self._report()
        elif prod(loops):
            self.epochs = loops[0] if len(loops) > 1 else 0
            self._report(steps=prod(loops))

    def _report(self, steps=0, per_epoch=0):
        steps = steps or self.steps or self.epochs * per_epoch
        self.planned = self.first_step + steps if steps else 0
        if steps or self.epochs or per_epoch:
            # A loop's own numbers are a guess: the header holds only what a Trainer gives.
            self.loop.beat.plan(per_epoch=per_epoch, epochs=self.epochs)
            self.loop.say("plan", steps=self.planned, epochs=self.epochs, steps_per_epoch=per_epoch, source="loop")
