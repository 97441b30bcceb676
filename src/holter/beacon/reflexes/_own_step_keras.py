"""A Keras model with a `train_step` of its own: as it is while it fits, in parts where it does not.

Nothing is known of such a step but that it hands its gradients to an optimizer. That call is met: in a whole step the
update waits until all of its gradients are there and are numbers; in parts (`_gather_keras`) it is made once for all.
"""

from ._gather_keras import Gather
from ._step_keras import after, changed_by, put_back, values_of
from ._train_function_keras import TrainFunction
from ._updates_keras import guarding, where

_PROVEN = 5


class OwnStep(TrainFunction):
    """Of one model."""

    def __init__(self, split, model, inner):
        super().__init__(split, model, inner)
        step = type(model).train_step
        self.inner_step = getattr(step, "python_function", step)  # what the user has compiled is compiled with all
        kind = split.keras.optimizers.Optimizer
        self.optimizers = list({id(one): one for one in vars(model).values() if isinstance(one, kind)}.values())

    def one_step(self, data, state):
        """The user's step; where an update is no number, nothing else that it has written stays either."""
        tf, found = self.tf, []
        before = values_of(tf, self.model)
        with guarding(tf, self.optimizers, state, data, found):
            logs = self.inner_step(self.model, data)
        before = changed_by(tf, self.model, before)
        good = tf.reduce_all(tf.stack(found)) if found else tf.constant(True)
        where(tf, tf.logical_not(good), lambda: put_back(before))
        return logs, after(tf, state, good)

    def values(self):
        """A step that fails has written what did not depend on that; one that has gone through often will not fail."""
        return values_of(self.tf, self.model) if self.went < _PROVEN else []

    def make_parts(self, pieces):
        return Gather(self, pieces)

    def decline(self, why):
        """The step is left to itself."""
        if self.why_not is None:
            self.why_not = why
        super().decline(why)

    def keeps(self):
        """What the look at a few samples has shown."""
        return ("exact", "") if self.parts.exact else ("equivalent", self.parts.because)
