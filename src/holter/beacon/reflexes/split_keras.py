"""Split the batch (Keras on TensorFlow): a step that does not fit is run in parts, with one update of the same size.

It stands around the train function of each model; one with a `train_step` of its own is `_own_step_keras`' affair. The
batch is taken from the iterator before the step, so that it is still there when the step fails. Gradients of the parts
are gathered, weighed by their share of the loss, and applied once; metrics see the outputs of the whole batch. Keeps:
exact, or equivalent for models with BatchNorm or random layers. `HOLTER_SPLIT=4` puts a split in force from the first
step on, for a run that is started again since nothing could be caught.
"""

import functools
import os
import sys

from ..adapters import _patch
from ._care_keras import Care
from ._kept_keras import KeptKeras
from ._oom import is_oom
from ._own_step_keras import OwnStep
from ._train_function_keras import TrainFunction

# In errors that hold another, of a compiled step or of a call into Python.
_WORDS = ("RESOURCE_EXHAUSTED", "ResourceExhaustedError", "CUDA_ERROR_OUT_OF_MEMORY", "failed to allocate memory")


class Split:
    """Stands around `make_train_function` and `train_step`."""

    def __init__(self, guest, loop, keras, tensorflow):
        self.guest, self.loop, self.keras, self.tf = guest, loop, keras, tensorflow
        self.open = None  # the care whose step is being traced or run
        self.asked = int(os.environ.get("HOLTER_SPLIT") or 0)
        self.told = set()
        self.trainer = _patch.owner_of(keras.Model, "make_train_function")
        self.train_step = self.trainer.train_step

    def patch(self):
        trainer, inner_make, inner_step = self.trainer, self.trainer.make_train_function, self.train_step

        @functools.wraps(inner_step)
        def train_step(model, data):
            care = self.open
            if care is None or care.model is not model:
                return inner_step(model, data)
            return care.train_step(data)

        @functools.wraps(inner_make)
        def make_train_function(model, *args, **kwargs):
            result = inner_make(model, *args, **kwargs)
            if not isinstance(model.train_function, TrainFunction):
                try:
                    kind = OwnStep if self.has_own_step(model) else Care
                    model.train_function = kind(self, model, model.train_function)
                    if self.guest.aside is not None:
                        self.guest.aside.watch(model, KeptKeras(model, model.train_function.hold))
                except Exception as error:
                    self.guest.guard.caught("make_train_function", error)
            return result

        trainer.train_step, trainer.make_train_function = train_step, make_train_function

    def has_own_step(self, model):
        return _patch.owner_of(type(model), "train_step") is not self.trainer

    def why_not(self, model):
        """Why the steps of a model can't be taken apart; None where they can."""
        if "train_step" in vars(model):
            return "%s was given a train_step of its own" % type(model).__name__
        if model.distribute_strategy.num_replicas_in_sync > 1:
            return "the batch is spread over several devices"
        return self.states_of(model)

    def states_of(self, model):
        """Why a model's samples have to keep their places in the batch; None where they need not."""
        if any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
            return "a stateful layer keeps a state for each sample of the batch"
        return None

    def dies_without_a_word(self):
        """Whether what does not fit raises no error that could be caught."""
        return sys.platform.startswith("linux") and self.loop.cpu_only

    def is_oom(self, error):
        """Tell whether an error of TensorFlow's says that there was no memory left."""
        if isinstance(error, self.tf.errors.ResourceExhaustedError):
            return True
        if not isinstance(error, self.tf.errors.OpError):
            return is_oom(error)
        words = str(error)
        return any(word in words for word in _WORDS)

    # --- telling ------------------------------------------------------------------------------------------

    def tell_split(self, care, size, words):
        name, rows = care.name, care.rows
        parts = -(-size // rows)
        if parts < 2 or care.told == rows:
            return
        care.told = rows
        keeps, because = care.keeps()
        if (name, rows, because) in self.told:
            return
        self.told.add((name, rows, because))
        text = "the batch of %d %s: it is run in %d parts of up to %d" % (size, words, parts, rows)
        self.guest.say(
            "intervention", act="split-batch", keeps=keeps, step=self.guest.beat.steps + 1, model=name,
            batch=size, rows=rows, because=because, text=text,
        )  # fmt: skip

    def tell_declined(self, name, why):
        if (name, why) not in self.told:
            self.told.add((name, why))
            step = self.guest.beat.steps + 1
            self.guest.say("declined", act="split-batch", step=step, model=name, because=why)
