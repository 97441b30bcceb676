"""`tf.function`s as they are called: a step where an optimizer was traced into one, a sign of life where not.

TensorFlow tells nobody else that a function is called. Only the outermost call counts, and none within Keras's `fit`.
"""

import functools
import sys
import weakref
from threading import get_ident
from time import monotonic

from ...core.creation_sites import site_of
from ...core.user_frame import is_user_file
from ...observe import wrap
from .loop import loss_name

_BETWEEN = ("polymorphic_function.py", "deprecation.py", "tf_decorator.py")  # `tf.function` and what it makes


class Functions:
    """Knows which functions train, and counts their calls."""

    def __init__(self, agent, loop):
        self.agent = agent
        self.loop = loop
        self.step_functions = {}  # id -> (weak reference, "apply" or "assign", what it counts as)
        self.waiting = 0  # calls of an assigning function that are not counted yet

    def patch(self, function_class):
        inner = function_class.__call__
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard
        known, called, mark = self.step_functions, self._called, self._mark
        xla = loop.traces.xla

        @functools.wraps(inner)
        def __call__(function, *args, **kwargs):  # noqa: N807
            outermost = not loop.depth and get_ident() == loop.thread
            if outermost and loop.busy:
                loop.nested()
                outermost = not loop.busy
            applied, assigned = loop.applied, loop.assigned
            began, traced, within = monotonic(), xla.traced, xla.inner
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
                if loop.nan.is_bad and loop.tape_hold is not None:
                    loop.tape_hold.traced()
        loop.step(n)

    def _function_born(self, function):
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
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
