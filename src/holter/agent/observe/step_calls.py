"""What one step is made of: now and then a single step is watched, and the calls on each of the user's lines counted.

A step of thousands of tiny operations spends its time between them, where no counter looks. The calls of one step are
counted in the thread that trains, and no more from the step's end on, or before when the step has more of them than
can be counted cheaply. Where another profiler is at work, nothing is done. Nothing that was counted is held.
"""

import os
import sys
from time import monotonic

from ..core.user_frame import place_of

if sys.version_info >= (3, 12):
    from .calls_monitored import Calls
else:
    from .calls_profiled import Calls

_FIRST = 2.0  # seconds of training before the first look, so that nothing is still warming up
_PAUSES = (4.0, 15.0, 60.0)  # between looks; the last one for good
_LINES = 6
_NODES = 20_000
_OPS = frozenset(("TFE_Py_FastPathExecute", "TFE_Py_Execute"))  # each runs one operation of TensorFlow eagerly
_FRAMEWORKS = ("torch", "tensorflow", "keras")


def anatomy_of(agent):
    """The one of this process, made by whichever adapter comes first."""
    look = getattr(agent, "anatomy", None)
    if look is None:
        look = agent.anatomy = Anatomy(agent)
    return look


class Anatomy:
    """Looks at a step once in a while; `on` is true only within such a step, `due` when the next may be looked at."""

    def __init__(self, agent):
        self.agent = agent
        self.on = self.due = False
        self.looks = 0
        self.next = 0.0
        self.facts = {}  # what adapters know of the loop, told with each look
        self.counted = Calls(_OPS, _FRAMEWORKS)
        self._clear()
        os.register_at_fork(after_in_child=self.end)
        agent.exit_hooks.last_acts.insert(0, agent.guard(self.end))

    def end(self):
        """Leave a look that is under way: where no step follows, and in a forked child, where it is the parent's."""
        if self.on:
            self.on = False
            self.counted.end()
            self._clear()

    def _clear(self):
        self.nodes = 0
        self.kinds = {}
        self.sizes = []

    # --- when ---------------------------------------------------------------------------------------------

    def rarely(self):
        """About once a second, at a step's end: is it time for a look?"""
        now = monotonic()
        if not self.next:
            self.next = now + _FIRST
        if now >= self.next and not self.on:
            if self.due:
                self.begin()  # no adapter has seen the step that went by begin
            self.due = not self.on

    def begin(self):
        """A step begins, or what is the first of it that can be seen."""
        self.due = False
        now = self.began = monotonic()
        self.next = now + _PAUSES[min(self.looks, len(_PAUSES) - 1)]
        self._clear()
        self.first_step = self.agent.beat.steps
        if self.counted.begin():
            self.looks += 1
            self.on = True

    def step_ended(self):
        """The end of the step that is looked at."""
        took = monotonic() - self.began
        counted = self.counted
        counted.end()
        self.on = False
        steps = self.agent.beat.steps - self.first_step
        if steps <= 0:
            return
        calls, ran = counted.lines, counted.ran
        keys = sorted(set(calls) | set(ran), key=lambda key: -max(calls.get(key, 0), ran.get(key, 0)))
        kinds = sorted(self.kinds.items(), key=lambda item: -item[1])[:_LINES]
        self.agent.say(
            "anatomy",
            step=self.agent.beat.steps,
            steps=steps,
            calls=counted.calls,
            ops=counted.ops,
            nodes=self.nodes,
            elements=self._usual_size(),
            kinds=[[name, n] for name, n in kinds],
            lines=[
                dict(place_of(key[0].co_filename, key[1], key[0].co_name), calls=calls.get(key, 0), ops=ran.get(key, 0))
                for key in keys[:_LINES]
            ],
            watched=round(counted.watched if counted.cut else took, 4),
            took=round(took, 4),
            **self.facts,
        )
        self._clear()

    # --- what ---------------------------------------------------------------------------------------------

    def _measure(self, node):
        """Note how many numbers a node gives, where this PyTorch says it."""
        for given in getattr(node, "_input_metadata", ())[:1]:
            self.sizes.append(_elements(given.shape))

    def _usual_size(self):
        return sorted(self.sizes)[len(self.sizes) // 2] if self.sizes else None

    def graph(self, tensor):
        """Count the nodes of a PyTorch graph by their kind, parameters left out."""
        first = tensor.grad_fn
        if first is None:
            return
        seen, waiting, kinds = {first}, [first], self.kinds
        while waiting and len(seen) < _NODES:
            node = waiting.pop()
            name = node.name()
            if "AccumulateGrad" not in name:
                self.nodes += 1
                kinds[name] = kinds.get(name, 0) + 1
                if self.nodes < 64 or not self.nodes & 15:
                    self._measure(node)
            for parent, _ in node.next_functions:
                if parent is not None and parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)


def _elements(shape):
    n = 1
    for size in shape:
        n *= int(size)
    return n
