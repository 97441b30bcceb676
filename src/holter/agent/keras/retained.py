"""What TensorFlow's and Keras's own things hold, by their shapes alone: no value is ever asked for."""

from contextlib import nullcontext

_MAX_VARIABLES = 400
_TAPE_BYTES = 4096  # at the least


class TensorFlowKinds:
    """Weighs eager tensors, variables, tapes and Keras models for the census."""

    def __init__(self, eager_tensor, variable, tape):
        self.eager_tensor = eager_tensor
        self.variable = variable
        self.tape = tape

    def quiet(self):
        return nullcontext()

    def weigh(self, load, thing, cls, _nodes):
        if isinstance(thing, (self.eager_tensor, self.variable)):
            self._tensor(load, thing, "tensor")
            return True
        if isinstance(thing, self.tape):
            load.graph = getattr(thing, "_tape", None) is not None  # what it has recorded lies in compiled code, unseen
            load.add(_TAPE_BYTES, "tape")
            return True
        if cls.__module__ != "builtins" and any(base.__module__.startswith("keras.") for base in cls.__mro__):
            return self._of_keras(load, thing)
        return False

    def _tensor(self, load, tensor, kind):
        shape = tensor.shape.as_list()
        size = tensor.dtype.size
        for length in shape:
            size *= length or 0
        if load.shape is None:
            load.shape = shape[:6]
        load.add(500, kind)
        on_host = "GPU" not in (getattr(tensor, "device", None) or "")
        load.block(("f", id(tensor)), size if on_host else 0, 0 if on_host else size, kind)

    def _of_keras(self, load, thing):
        """A model or an optimizer by its variables, a symbolic tensor as next to nothing."""
        kind = None
        if hasattr(type(thing), "train_step"):
            kind = "model"
        elif hasattr(type(thing), "apply") and hasattr(type(thing), "update_step"):
            kind = "optimizer"
        if kind is None:
            return type(thing).__name__ == "KerasTensor"
        load.add(100_000, kind)  # layers, their configuration and bookkeeping
        for variable in list(getattr(thing, "variables", ()))[:_MAX_VARIABLES]:
            value = getattr(variable, "_value", None)
            if isinstance(value, self.variable):
                self._tensor(load, value, kind)
        return True

    def visit(self, walk, thing, cls, spot, _depth):
        if isinstance(thing, (self.eager_tensor, self.variable)):
            load = walk.weigher.load(thing)
            estimate = walk.weigher.estimate([load], 1, [thing])
            if estimate.host + estimate.device >= 65536:
                length = 1
                for size in load.shape or ():
                    length *= size or 0
                walk.note_array(thing, spot, estimate, length)
            return True
        if cls.__name__ in ("CallbackList", "CallbackHandler", "CallbackContainer"):
            # The list of callbacks is a library's, what is in it may be the user's own.
            spot.foreign = 0
            return False
        # Layers, functions and their graphs lead nowhere that the user has a name for.
        return cls.__module__.startswith("tensorflow.")


def join(agent, tensorflow_module):
    """Let the census of this process know TensorFlow's own things."""
    ops, variables = tensorflow_module("framework.ops"), tensorflow_module("ops.resource_variable_ops")
    tape = tensorflow_module("eager.backprop").GradientTape
    agent.retained.kinds.append(TensorFlowKinds(ops.EagerTensor, variables.BaseResourceVariable, tape))
