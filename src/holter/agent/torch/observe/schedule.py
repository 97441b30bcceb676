"""How many steps a plain loop means to take: the loader's length, and the `range` of the loop around it."""

import ast
import linecache
import sys
from math import prod
from typing import Any

from ....record import ring_format as f
from ...core import frame_locals
from ...core.user_frame import is_user_file

_MAX_CHARACTERS = 2_000_000  # of a file of the user's
_COUNTED_STEPS = 5  # between two looks at a counter
_IDLE = 3  # passes in a row in which nothing is trained: a look at one batch before an epoch is a single one


class Plan:
    """Counts the passes over the loader that training draws from, and looks once for the number of epochs."""

    def __init__(self, agent, samples):
        self.agent = agent
        self.samples = samples
        self.drew_from = None
        self.drawn = self.idle = 0
        self.passes = {}  # id of a loader -> passes begun for training, and the step at which the last one was
        self.source = {}  # id of an iterator -> (id of its loader, its length)
        self.epoch = 0
        self.training = None  # id of the loader that training draws from
        self.reported: "Any" = None
        self.known = False  # a Trainer has said its plan: it knows better
        self.counter: "Any" = (0, None, None)  # at the first look: the step, a `while`'s counter and its bound

    def pass_begins(self, loader, iterator):
        key, beat = id(loader), self.agent.beat
        passes, steps = self.passes.get(key, (0, -1))
        self._idles(passes > 0 and 0 < beat.steps == steps)
        # A pass for validation, or one after which nothing was stepped, is no epoch.
        if beat.phase != f.VALIDATION and beat.steps != steps:
            passes, steps = passes + 1, beat.steps
            self.passes[key] = passes, steps
        length = _length(loader)
        if len(self.source) > 64:
            self.source.clear()
        self.source[id(iterator)] = (key, length, passes)
        if key == self.training and passes != self.epoch and not self.known:
            self._epoch_is(passes)

    def _idles(self, untrained):
        """Passes that draw nothing and train nothing: what is drawn from beside the loader has run out."""
        drawn, self.drawn = self.samples.draws - self.drawn, self.samples.draws
        self.idle = self.idle + 1 if untrained and drawn <= 1 else 0
        if self.idle == _IDLE:
            self.agent.say("idle-passes", step=self.agent.beat.steps, epoch=self.epoch)

    def stepped(self, beat):
        """After a step, once a second: which epoch this is, and what is still planned."""
        key, length, passes = self.source.get(self.drew_from, (None, 0, 0))
        self.training = key
        if passes and passes != self.epoch and not self.known:
            self._epoch_is(passes)
        frame = sys._getframe(2)
        if self.reported is not None and not self.known:
            self._counted(beat, frame)
        elif not self.known:
            self.counter = (beat.steps, *(_counter_around(frame) or (None, None)))
            loops = loops_around(frame)
            if length:
                # `zip(range(steps), loader)` is the loop over the loader itself: its number is one of steps.
                unzipped = loops_around(frame, zipped=False)
                steps = prod(loops) if unzipped != loops else 0
                self.report(beat, epochs=_around_the_loader(unzipped), per_epoch=length, steps=steps, source="loop")
            else:
                epochs = loops[0] if len(loops) > 1 else 0
                self.report(beat, epochs=epochs, steps=prod(loops) if loops else 0, source="loop")

    def _counted(self, beat, frame):
        """`while step < N` is a plan where that counter was seen to go with the steps: looked at twice, far apart."""
        steps, value, bound = self.counter
        if value is None or beat.steps < steps + _COUNTED_STEPS:
            return
        self.counter = 0, None, None
        if _counter_around(frame) == (value + beat.steps - steps, bound):
            done = steps if value >= steps else steps - 1  # most count a step once it is done, which it is not yet
            epochs, per_epoch, _ = self.reported
            self.report(beat, epochs=epochs, per_epoch=per_epoch, steps=bound - value + done, source="loop")

    def _epoch_is(self, epoch):
        self.epoch = epoch
        self.agent.beat.new_epoch(epoch)
        self.agent.say("epoch", epoch=epoch, step=self.agent.beat.steps)

    def report(self, beat, epochs=0, per_epoch=0, steps=0, source=""):
        """Say the plan when it is new; `steps` counts optimizer steps, `per_epoch` batches."""
        plan = (epochs, per_epoch, steps)
        if plan == self.reported:
            return
        self.reported = plan
        # A loop's own numbers are a guess: the header holds only what a Trainer has said.
        beat.plan(steps=0 if source == "loop" else steps, per_epoch=per_epoch, epochs=epochs)
        if any(plan):
            self.agent.say("plan", steps=steps, epochs=epochs, steps_per_epoch=per_epoch, source=source)


def _length(loader):
    """The batches of a pass; 0 where asking for them would run a `__len__` of the user's, which may draw or print.

    That of a dataset is asked all the same: PyTorch's own samplers do so with every pass.
    """
    if getattr(loader, "_dataset_kind", 0):  # an iterable one; PyTorch would hold the answer against it
        return 0
    asked, seen = loader, set()
    while asked is not None and id(asked) not in seen:
        seen.add(id(asked))
        code = getattr(getattr(type(asked), "__len__", None), "__code__", None)
        if code is not None and is_user_file(code.co_filename):
            return 0
        held = getattr(asked, "__dict__", {})
        asked = held.get("sampler") if held.get("batch_sampler") is None else held["batch_sampler"]
    try:
        return len(loader)
    except Exception:
        return 0


def _around_the_loader(loops):
    """The passes of the loop around the one over a loader; that one is no `range`, and the innermost of all."""
    if len(loops) > 1 and not loops[-1]:
        return loops[-2]
    return loops[0] if loops else 0


def loops_around(frame, zipped=True):
    """The lengths of the loops around a step in the user's own frames, outermost first.

    Only that of a `for ... in range(N)` is known; any other counts as 0, so that a product with it is 0 too. With
    `zipped` so is that of a range that stands first in a `zip`.
    """
    found = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            found = _ranges_around(frame, zipped) + found
        frame = frame.f_back
    return found


def _ranges_around(frame, zipped):
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    if not source or len(source) > _MAX_CHARACTERS:
        return []
    counts = []
    for node in ast.walk(ast.parse(source)):  # breadth first: outer loops come before inner ones
        if not isinstance(node, (ast.For, ast.While)) or not node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
            continue
        if _in_same_function(node, frame):
            counts.append(_count(node.iter, frame, zipped) if isinstance(node, ast.For) else 0)
    return counts


def _counter_around(frame):
    """The counter and the bound of the innermost `while counter < bound` around a step; None without one."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            source = "".join(linecache.getlines(frame.f_code.co_filename))
            for node in reversed(list(ast.walk(ast.parse(source))) if len(source) <= _MAX_CHARACTERS else []):
                if isinstance(node, ast.While) and node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
                    test = node.test if _in_same_function(node, frame) else None
                    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Lt, ast.LtE)):
                        found = _value(test.left, frame), _value(test.comparators[0], frame)
                        if len(test.ops) == 1 and all(type(one) is int for one in found):
                            return found[0], found[1] + isinstance(test.ops[0], ast.LtE)
        frame = frame.f_back
    return None


def _in_same_function(node, frame):
    first = frame.f_code.co_firstlineno
    return node.lineno >= first


def _count(call, frame, zipped):
    """The number of passes of `range(...)`, also inside `tqdm(...)`, `trange(...)` or `enumerate(...)`."""
    while isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
        name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
        if name in ("range", "trange"):
            bounds = [_value(argument, frame) for argument in call.args]
            if bounds and all(type(bound) is int for bound in bounds):
                return len(range(*bounds))
            return 0
        if not call.args or (name == "zip" and not zipped):
            return 0
        call = call.args[0]
    return 0


def _value(node, frame):
    """A number that stands there or that a name or an attribute holds; nothing is called."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        held = frame_locals.read(frame, node.id).get(node.id)
        return frame.f_globals.get(node.id) if held is None else held
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        held = getattr(owner, "__dict__", None)
        return held.get(node.attr) if isinstance(held, dict) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _value(node.left, frame), _value(node.right, frame)
        if type(left) is int and type(right) is int:
            return left + right if isinstance(node.op, ast.Add) else left - right
    return None
