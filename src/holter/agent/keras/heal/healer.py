"""What --heal may do to a Keras program on TensorFlow, and where it is asked.

In calm the plain train function runs, and nothing of a model, an optimizer or a graph is replaced: the adapter asks
here before the first step and after each one. A train function of ours (`micro_batch`) takes the place of the plain
one only after an act: when a loss was non-finite (`nonfinite`), or in an attempt that was started again since memory
ran out (`HOLTER_SPLIT=2`). A step that runs out of memory has lost its batch, which Keras draws within it, and may
have written half of its update: it fails as it would alone, and the run is started again. A loop with a GradientTape
makes its updates itself: it is never altered, and that is reported once with the cure.
"""

import os
import weakref

from ....record import environment
from ...heal.leaves import Unsplittable
from ...heal.out_of_memory import is_oom
from .micro_batch import MicroBatches
from .nonfinite import NonfiniteUpdates

# In errors that hold another, of a compiled step or of a call into Python.
_OOM_WORDS = ("RESOURCE_EXHAUSTED", "ResourceExhaustedError", "CUDA_ERROR_OUT_OF_MEMORY", "failed to allocate memory")
_TAPE = {
    "split-batch": "a loop with a GradientTape makes its updates itself: give it smaller batches and add up their "
    "gradients",
    "hold-update": "a loop with a GradientTape makes its updates itself: skip one there where the loss is not finite",
}


class Healer:
    """One for the process."""

    def __init__(self, agent, loop, keras, tensorflow):
        self.agent, self.loop, self.keras, self.tf = agent, loop, keras, tensorflow
        self.chunks = int(os.environ.get(environment.SPLIT) or 0)
        self.updates = weakref.WeakKeyDictionary()  # by model
        self.epoch = None
        self.declined_for_tapes = set()

    # --- asked by the adapter -----------------------------------------------------------------------------

    def fit_begins(self, model, callbacks, is_counted):
        """Before the first step of a `fit` of Keras' own; `is_counted` where the length of its epochs is known."""
        updates = self._updates_of(model)
        updates.is_counted = is_counted or bool(model.jit_compile)
        updates.is_theirs = any("TerminateOnNaN" in [cls.__name__ for cls in type(one).__mro__] for one in callbacks)
        self._split(updates, model)
        updates.fit_begins()

    def batch_begins(self, model):
        """Before the first `train_on_batch` of a model that was compiled."""
        updates = self._updates_of(model)
        if self.chunks > 1:
            model.make_train_function()
            self._split(updates, model)

    def step_ended(self, model, logs, epoch):
        """After a step whose loss is known; gives the logs that Keras is to see."""
        updates, self.epoch = self.updates.get(model), epoch
        if updates is None or updates.off or updates.is_theirs:
            return logs
        return updates.step_ended(logs, epoch)

    def tape_applies(self):
        """An optimizer was called outside of `fit`: that is a loop with a tape."""
        if self.chunks > 1:
            self._decline_tape("split-batch")

    def tape_is_nonfinite(self):
        """A loop with a tape has a loss that is non-finite."""
        self._decline_tape("hold-update")

    def _decline_tape(self, act):
        if act not in self.declined_for_tapes:
            self.declined_for_tapes.add(act)
            self.agent.say("declined", act=act, step=self.agent.beat.steps + 1, because=_TAPE[act])

    # --- acts ---------------------------------------------------------------------------------------------

    def _updates_of(self, model):
        updates = self.updates.get(model)
        if updates is None:
            updates = self.updates[model] = NonfiniteUpdates(self, model)
        return updates

    def _split(self, updates, model):
        """Have batches run in micro-batches, where an attempt before has died of them."""
        if self.chunks < 2 or isinstance(model.train_function, MicroBatches) or updates.why_not_replaced:
            return
        why = self.why_not(model)
        if why:
            updates.why_not_replaced = why
            name = type(model).__name__
            self.agent.say("declined", act="split-batch", step=self.agent.beat.steps + 1, model=name, because=why)
        else:
            model.train_function = MicroBatches(self, updates, model, self.chunks)

    def why_not(self, model):
        """Why a train function of ours can't take the place of this model's own; empty where it can."""
        if "train_step" in vars(model):
            return "%s was given a train_step of its own" % type(model).__name__
        if type(model).make_train_function.__module__.partition(".")[0] != "keras":
            return "%s makes its train function itself" % type(model).__name__
        if model._distribute_strategy is not None or self.tf.distribute.has_strategy():
            return "it is trained under a distribution strategy"
        if model.run_eagerly:
            return "the model is run eagerly"
        return ""

    def is_oom(self, error):
        """Tell whether an error of TensorFlow's says that memory ran out."""
        if isinstance(error, self.tf.errors.ResourceExhaustedError):
            return True
        if not isinstance(error, self.tf.errors.OpError):
            return is_oom(error)
        text = str(error)
        return any(word in text for word in _OOM_WORDS)

    def reason_of(self, error):
        """Why something was not done, in words."""
        if isinstance(error, Unsplittable):
            return str(error)
        if self.is_oom(error):
            return "not even one chunk of the batch fits"
        self.agent.guard.caught("micro-batches", error)
        return "its step can't be run in chunks (%s)" % type(error).__name__
