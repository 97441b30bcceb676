"""What the Keras and the TensorFlow adapter must agree on: who steps, in which thread, and what is counted already.

`fit`, `train_on_batch`, an eager `apply_gradients` and a `tf.function` may all be around the same step. Whoever is
outermost counts it and sets `busy` or `depth`, so that those within only give phases.
"""

import weakref
from math import nan
from threading import get_ident, main_thread
from time import monotonic, monotonic_ns

from ...core.user_frame import place, place_of, user_frame
from ...observe.batch_shapes import BatchShapes
from ...observe.step_calls import anatomy_of
from ...observe.turns import Turns
from ..nonfinite import NanWatch

_EVENTS_AT_ONCE, _MAX_EVENTS = 100, 600  # of one kind: reported as they come, and in all
_EVENTS_PAUSE = 10.0  # seconds

TRAINING, EVALUATING = 1, 2


def loop_of(agent):
    """The one loop of this process, made by whichever adapter comes first."""
    loop = getattr(agent, "loop", None)
    if loop is None:
        loop = agent.loop = Loop(agent)
    return loop


def loss_name(logs):
    """The key under which a loss is kept, or None."""
    if "loss" in logs:
        return "loss"
    return next((name for name in logs if isinstance(name, str) and "loss" in name), None)


class Loop:
    """The training loop as far as it is known."""

    def __init__(self, agent):
        self.agent = agent
        self.beat = agent.beat
        self.guard = agent.guard
        self.thread = main_thread().ident
        self.in_fit = 0
        self.busy = 0  # within a batch that Keras itself drives
        self.depth = 0  # within a tf.function that was called from outside
        self.tracing = 0  # within the tracing of one
        self.applied = self.assigned = self.graded = 0  # calls within traces so far
        self.optimizers = 0  # optimizers made by this process
        self.applied_eagerly = False
        self.optimizer = None  # the one whose learning rate is read
        self.optimizer_id = None
        self.turns = Turns()
        self.cpu_only = False  # until it is known: a value on a device is never read
        self.eager_tensor = None
        self.loss = self.lr = nan
        self.loss_known = 0
        self.batch = 0
        self.shape = None
        self.batches = BatchShapes(agent)
        self.signs = 0
        self.next_rare = 0
        self.look = anatomy_of(agent)
        self.traces = None  # the ledger of traces, once TensorFlow is there
        self.feed = None  # how the data of a fit come, where TensorFlow draws them
        self.healer = self.backups = None  # of --heal
        self.before_step = None  # what is to be done once, when the next step is known to come
        self.rarely = []  # what is to be done once a second
        self.at_begin = []
        self.nan = NanWatch(agent, self)
        self.rarely.append(self.nan.rarely)
        if agent.heal:
            self.guard(self._arm_collect)()
        self._reported = {}

    def _arm_collect(self):
        from ...heal.collect import collect_of

        self.rarely.append(collect_of(self.agent).look)

    def mine(self):
        """True in the thread that trains; tf.data and py_function call Python from threads of their own."""
        return get_ident() == self.thread

    def claim(self, busy):
        """A thread that takes the first step of all is the one that trains; afterwards only `fit` may move it."""
        if busy != TRAINING or self.beat.steps:
            return False
        self.thread = get_ident()
        return True

    def use(self, optimizer):
        """Note whose learning rate to read."""
        if optimizer is not None and self.optimizer_id != id(optimizer):
            self.optimizer_id = id(optimizer)
            self.optimizer = weakref.ref(optimizer)

    def begin(self):
        """Training, or something that lasts like it, has been seen: from here on there is a ring."""
        self.agent.greet("trainer")
        self.beat.open()
        for act in self.at_begin:
            act()

    def describe(self, model, at_once=1):
        """What of a Keras model bears on the cost of a step: reported with the next look at one."""
        made = self.traces.compiled.get(id(model)) if self.traces is not None else None
        site, frame = made[1] if made is not None else None, user_frame(2)
        self.look.facts = {
            "run_eagerly": bool(getattr(model, "run_eagerly", False)),
            "at_once": at_once,
            "compiled": place_of(*site) if site is not None else {},
            "fit": place(frame),
        }

    def counts(self, thing):
        """For how many steps this one of an optimizer or function counts."""
        return self.turns.counts(thing)

    def step(self, n=1):
        """Close a step with what is known of it."""
        beat = self.beat
        if not beat.open_:
            self.begin()
        if self.before_step is not None:
            act, self.before_step = self.before_step, None
            act()
        beat.step(self.loss, self.lr, nan, self.batch, self.loss_known, n)
        self.loss_known = 0
        if self.look.on:
            self.look.step_ended()
        if beat.since >= self.next_rare:
            self._rare(beat.since)

    def sign(self):
        """A sign of life of a loop that may never take a step; the second one opens the ring."""
        beat = self.beat
        beat.alive()
        if not beat.open_:
            self.signs += 1
            if self.signs < 2:
                return
            self.begin()
        now = monotonic_ns()
        if now >= self.next_rare:
            self._rare(now)

    def _rare(self, now):
        self.next_rare = self.beat.next_look(now)
        for act in self.rarely:
            try:
                act()
            except Exception as error:
                self.guard.caught(act.__name__, error)
        self.agent.census.report(monotonic())
        self.agent.retained.tick(self.beat.steps)
        self.look.rarely()

    def saw_loss(self, value):
        """Take a loss where reading it makes no device wait."""
        if value.__class__ is self.eager_tensor and self.cpu_only:
            if value._rank() == 0:
                self.loss = float(value)
                self.loss_known = 1  # F_LOSS_KNOWN
            return
        if not self.beat.open_:
            self.begin()  # which also finds out whether values may be read
            if self.cpu_only:
                self.saw_loss(value)
                return
        number = _number(value)
        if number is not None:
            self.loss = number
            self.loss_known = 1

    def saw_batch(self, element):
        """The batch size from the first tensor of an element; its shapes are reported when they change."""
        tensor = element
        while tensor.__class__ is tuple or tensor.__class__ is list:
            if not tensor:
                return
            tensor = tensor[0]
        if tensor.__class__ is dict and tensor:
            tensor = next(iter(tensor.values()))
        if tensor.__class__ is self.eager_tensor:
            shape = tensor._shape_tuple()
            if shape != self.shape:
                self.shape = shape
                self.batch = shape[0] if shape else 0
                tensors = element if element.__class__ in (tuple, list) else [tensor]
                self.report_batch([one for one in tensors if one.__class__ is self.eager_tensor])

    def report_batch(self, tensors):
        shapes = [[list(t.shape), getattr(t.dtype, "name", str(t.dtype))] for t in tensors[:8]]
        if shapes:
            self.batches.saw(self.beat.steps + 1, shapes)

    def say(self, kind, /, **fields):
        """Report an event that a script may cause without end: the first hundred as they come, then now and then."""
        now = monotonic()
        count, last = self._reported.get(kind, (0, 0.0))
        if count < _EVENTS_AT_ONCE or (count < _MAX_EVENTS and now - last >= _EVENTS_PAUSE):
            self._reported[kind] = (count + 1, now)
            self.agent.say(kind, **fields)


def _number(value):
    """A float of what lies in the host's memory already, else None."""
    if value.__class__ is float:
        return value
    if value.__class__.__module__ == "numpy":
        return float(value) if value.ndim == 0 else None
    if getattr(value, "is_cpu", None) is True:  # PyTorch, beneath Keras
        return value.item() if value.numel() == 1 else None
    return None
