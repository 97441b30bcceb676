"""A lower bound of what a step of a Keras model must hold at once: only what is certain.

A layer's kernel gets its gradient from the layer's input, and so does whatever comes before a maximum: the inputs of
all trainable Dense and convolution layers, and of max pooling after one, are in memory together when the backward pass
begins. What is computed in place or may share memory is counted once. Where this alone is more than is left, the kernel
kills the process in this very step.
"""

from ....facts import host_memory as room

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
