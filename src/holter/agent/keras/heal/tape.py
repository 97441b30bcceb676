"""Hold back an update that is not finite in an eager loop with a tape: TensorFlow with an optimizer of Keras.

Asked only when the loss of this step, or a small gradient of it, was seen not to be finite: then all gradients are
read, and where one is not, the optimizer is not called. Keeps: equivalent. It lets go when more than about one update
in five would have to be left out: no batch is to blame then. A step that is traced makes its update within
its graph, which is left as it is: that is declined.
"""

from ...heal.nonfinite_reason import Patience
from ...observe import numpy_finite
from .micro_batch import scales_loss

_TOLD = 5
_TRACED = "the update is made inside a tf.function: skip it there where the loss is not finite, with tf.cond"


class TapeHold:
    """Asked before an update of a step that is suspect."""

    def __init__(self, agent, loop, tensorflow):
        self.agent, self.loop, self.tf = agent, loop, tensorflow
        self.held = 0
        self.off = self.is_told = False
        self.patience = Patience()

    def refuses(self, optimizer, grads=None, *_args, **_kwargs):
        """Whether this update is not to be made."""
        if self.off or not isinstance(grads, (list, tuple)) or scales_loss(optimizer):
            return False
        if self.tf.distribute.has_strategy() or not any(self._is_bad(gradient) for gradient in grads):
            return False
        step = self.agent.beat.steps + 1
        self.held += 1
        if not self.patience.spend(step):
            self.off = True
            because = (
                "%d of %d updates were not finite: no batch is to blame; lower the learning rate, or clip the gradients"
            )
            self.agent.say("declined", act="hold-update", step=step, because=because % (self.held, step))
            return False
        if self.held <= _TOLD or not self.held & (self.held - 1):
            text = "the update of step %d was left out: a gradient is not finite" % step
            because = "batch skipped"
            self.agent.say("intervention", act="hold-update", keeps="equivalent", step=step, text=text, because=because)
        return True

    def _is_bad(self, gradient):
        values = numpy_finite.as_array(getattr(gradient, "values", gradient))
        if values is None or values.dtype.kind != "f":
            return False
        total = values.sum(dtype="float64")
        return bool(total - total != 0.0)

    def traced(self):
        """A traced step has returned a loss that is not finite: its update has been made."""
        if not self.is_told:
            self.is_told = True
            self.agent.say("declined", act="hold-update", step=self.agent.beat.steps + 1, because=_TRACED)
