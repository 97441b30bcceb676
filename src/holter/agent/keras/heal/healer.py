"""What --heal may do to a Keras program on TensorFlow, and where it is asked.

In calm the plain train function runs, and nothing of a model, an optimizer or a graph is replaced: the adapter asks
here before the first step of a fit, after each step, and when a call has failed. A train function of ours takes the
place of the plain one only after an act: when a loss was not finite (`nan_keras`), in an attempt that was started
again since memory ran out (`HOLTER_SPLIT=2`), or before a first step that certainly crosses the limit (`parts_needed`).
A step that runs out of memory has lost its batch, which Keras draws within it, and may have written half of its update:
it is left to fail, and the run is started again.
"""

import os
import sys
import weakref

from ....facts import host_memory as room
from ....record import environment
from ...heal.leaves import Unsplittable
from ...heal.out_of_memory import is_oom
from .micro_batch import MicroBatches
from .nonfinite import Hold

# In errors that hold another, of a compiled step or of a call into Python.
_WORDS = ("RESOURCE_EXHAUSTED", "ResourceExhaustedError", "CUDA_ERROR_OUT_OF_MEMORY", "failed to allocate memory")
_TAPE = "a loop with a GradientTape makes its updates itself: give it smaller batches and add up their gradients"


class Healer:
    """One for the process."""

    def __init__(self, agent, loop, keras, tensorflow):
        self.agent, self.loop, self.keras, self.tf = agent, loop, keras, tensorflow
        self.asked = int(os.environ.get(environment.SPLIT) or 0)
        self.holds = weakref.WeakKeyDictionary()  # by model
        self.words = "would not fit"
        self.epoch = None
        self.is_told_of_tapes = False

    # --- asked by the adapter -----------------------------------------------------------------------------

    def fit_begins(self, model, callbacks, samples, is_counted):
        """Before the first step of a `fit` of Keras' own."""
        hold = self._hold(model)
        hold.is_counted = is_counted or bool(model.jit_compile)
        hold.is_theirs = any("TerminateOnNaN" in [cls.__name__ for cls in type(one).__mro__] for one in callbacks)
        self._split(hold, model, samples)
        hold.fit_begins()

    def batch_begins(self, model, samples):
        """Before the first `train_on_batch` of a model that was compiled."""
        hold = self._hold(model)
        if self.asked or self.loop.cpu_only:
            model.make_train_function()
            self._split(hold, model, samples)

    def step_ended(self, model, logs, epoch):
        """After a step whose loss is known; gives the logs that Keras is to see."""
        hold, self.epoch = self.holds.get(model), epoch
        if hold is None or hold.off or hold.is_theirs:
            return logs
        return hold.step_ended(logs, epoch)

    def applied(self):
        """An optimizer was called outside of `fit`: that is a loop with a tape."""
        if self.asked and not self.is_told_of_tapes:
            self.is_told_of_tapes = True
            self.agent.say("declined", act="split-batch", step=self.agent.beat.steps + 1, because=_TAPE)

    # --- acts ---------------------------------------------------------------------------------------------

    def _hold(self, model):
        hold = self.holds.get(model)
        if hold is None:
            hold = self.holds[model] = Hold(self, model)
        return hold

    def _split(self, hold, model, samples):
        """Have batches run in parts, where an attempt before has died of them or this one certainly would."""
        if isinstance(model.train_function, MicroBatches) or hold.why_no_guard:
            return
        parts, words = 1, ""
        if sys.platform.startswith("linux") and self.loop.cpu_only and not model.run_eagerly:
            parts, words = parts_needed(self.tf, model, samples)
        if words:
            self.words = words
        parts *= max(1, self.asked)
        if parts < 2:
            return
        why = self.why_not(model)
        if why:
            hold.why_no_guard = why
            self.agent.say("declined", act="split-batch", step=self.agent.beat.steps + 1, model=hold.name, because=why)
        else:
            model.train_function = MicroBatches(self, hold, model, parts)

    def why_not(self, model):
        if "train_step" in vars(model):
            return "%s was given a train_step of its own" % type(model).__name__
        if type(model).make_train_function.__module__.partition(".")[0] != "keras":
            return "%s makes its train function itself" % type(model).__name__
        if model._distribute_strategy is not None or self.tf.distribute.has_strategy():
            return "it is trained under a distribution strategy"
        if model.run_eagerly:
            return "the model is run eagerly"
        return ""

    # --- for both -----------------------------------------------------------------------------------------

    def is_oom(self, error):
        """Tell whether an error of TensorFlow's says that there was no memory left."""
        if isinstance(error, self.tf.errors.ResourceExhaustedError):
            return True
        if not isinstance(error, self.tf.errors.OpError):
            return is_oom(error)
        words = str(error)
        return any(word in words for word in _WORDS)

    def words_for(self, error):
        """Why something was not done."""
        if isinstance(error, Unsplittable):
            return str(error)
        if self.is_oom(error):
            return "not even a part of the batch fits"
        self.agent.guard.caught("micro-batches", error)
        return "its step can't be run in parts (%s)" % type(error).__name__


# --- A lower bound of what a step of a Keras model must hold at once: only what is certain
# A layer's kernel gets its gradient from the layer's input, and so does whatever comes before a maximum: the inputs
# of all trainable Dense and convolution layers, and of max pooling after one, are in memory together when the
# backward pass begins. What is computed in place or may share memory is counted once. Where this alone is more than
# is left, the kernel kills the process in this very step.

_KERNELS, _MAXIMA = ("Dense", "BaseConv"), ("MaxPooling1D", "MaxPooling2D", "MaxPooling3D")
_AIM = 4  # times the bound in a part: what a step takes was seen to be two to three times that


def parts_needed(tf, model, samples):
    """How many parts a batch certainly needs, and the words for it; 1 where it may fit."""
    free = room.left()
    if free is None or not samples:
        return 1, ""
    free += _swap() + _pool(tf)
    need = bytes_for(model, samples)
    if need <= free:
        return 1, ""
    words = "takes at least %.2g GB where %.2g GB are left" % (need / 1e9, free / 1e9)
    return min(samples, -(-_AIM * need // max(free, 1))), words


def bytes_for(model, samples):
    """Of the top layers of a model that was made of tensors; 0 for one that can't be looked into."""
    found = {}
    for layer in getattr(model, "layers", ()):
        if getattr(layer, "_remat_mode", None) is not None:
            return 0
        try:
            if not (_is(layer, _KERNELS) and layer.trainable) and not (_is(layer, _MAXIMA) and _learns(layer.input)):
                continue
            tensor = _root(layer.input)
        except (AttributeError, ValueError):
            continue
        size = 2 if layer.compute_dtype in ("float16", "bfloat16") else 4
        found[id(tensor)] = _elements(tensor) * size
    return samples * sum(found.values())


def _is(layer, kinds):
    names = [cls.__name__ for cls in type(layer).__mro__]
    return type(layer).__module__.partition(".")[0] == "keras" and any(kind in names for kind in kinds)


def _learns(tensor):
    """Whether a trainable layer is on the way to it, so that there is a gradient to come back."""
    layer = tensor._keras_history.operation
    if _is(layer, _KERNELS) and layer.trainable:
        return True
    return any(_learns(before) for node in layer._inbound_nodes for before in node.input_tensors)


def _root(tensor):
    """The tensor whose memory this one may share: through layers without weights that keep the number of elements."""
    while True:
        layer = tensor._keras_history.operation
        before = layer._inbound_nodes[0].input_tensors if len(layer._inbound_nodes) == 1 else []
        if len(before) != 1 or getattr(layer, "weights", None) or _elements(before[0]) != _elements(tensor):
            return tensor
        tensor = before[0]


def _elements(tensor):
    count = 1
    for n in tensor.shape[1:]:
        count *= n or 1
    return count


def _swap():
    """The kernel would first fill it."""
    return sum(int(line.split()[1]) << 10 for line in room._lines("/proc/meminfo") if line.startswith("SwapFree"))


def _pool(tf):
    """What TensorFlow's own allocator keeps and nobody uses."""
    try:
        found = tf.config.experimental.get_memory_info("CPU:0")
    except ValueError:  # it takes from the C library, and gives back
        return 0
    return found["peak"] - found["current"]
