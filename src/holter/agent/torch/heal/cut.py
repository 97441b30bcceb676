"""A collated batch cut along its samples: tensors, arrays and lists within tuples, lists and dictionaries.

Along which axis each tensor holds the samples is learned on the first batch, by the loader's own batch size: the last
batch of a pass may be smaller. What belongs to no sample is handed to every part.
"""

import copy

from ...heal.leaves import Unsplittable


class Cutter:
    """Cuts the batches of one loader."""

    def __init__(self, torch, batch_size):
        self.torch = torch
        self.asked = batch_size if isinstance(batch_size, int) else None
        self.axes = []  # of each leaf of the first batch in order: an axis, or None for what all samples share
        self.size = 0  # of the first batch

    def open(self, batch):
        """Take a batch apart; raises where it can't be cut. Gives its size and its leaves."""
        if self.axes:
            return self._like_before(batch)
        size, leaves = self.asked, []
        _leaves(self.torch, batch, size, leaves)
        if size is None or not any(size in _shape(leaf)[:2] for leaf in leaves):
            size, leaves = next((_shape(leaf)[0] for leaf in leaves if _shape(leaf)), 0), []
            _leaves(self.torch, batch, size, leaves)
        axes = [_axis(leaf, size) for leaf in leaves]
        if all(axis is None for axis in axes):
            raise Unsplittable("its batches hold no tensor with the samples along an axis")
        self.axes, self.size = axes, size
        return size, leaves

    def _like_before(self, batch):
        """A later batch: of the size before, or of the size that makes its leaves those of the first one."""
        for size in (self.size, *_sizes(self.torch, batch)):
            leaves = []
            _leaves(self.torch, batch, size, leaves)
            if len(leaves) == len(self.axes) and all(map(_holds, leaves, self.axes, [size] * len(leaves))):
                return size, leaves
        raise Unsplittable("its batches are not all made alike")

    def part(self, batch, size, begin, end):
        """The same batch with some of its samples."""
        axes = iter(self.axes)

        def cut(leaf):
            axis = next(axes)
            if axis is None:
                return leaf
            if isinstance(leaf, self.torch.Tensor):
                return leaf.narrow(axis, begin, end - begin)
            return leaf[begin:end] if axis == 0 else leaf[:, begin:end]

        return _rebuilt(self.torch, batch, size, cut)


def _shape(leaf):
    if isinstance(leaf, (list, tuple)):
        return [len(leaf)]
    return [int(n) for n in leaf.shape]


def _axis(leaf, size):
    shape = _shape(leaf)
    if not shape:
        return None
    if shape[0] == size:
        return 0
    if len(shape) > 1 and shape[1] == size:
        return 1
    raise Unsplittable("a tensor of shape %s does not follow the batch of %d" % (tuple(shape), size))


def _holds(leaf, axis, size):
    return axis is None or (len(_shape(leaf)) > axis and _shape(leaf)[axis] == size)


def _sizes(torch, thing):
    """What may be the number of samples of a batch: lengths of lists and of tensors along their first two axes."""
    if isinstance(thing, torch.Tensor) or _is_array(thing):
        yield from _shape(thing)[:2]
    elif hasattr(thing, "keys"):
        for key in thing.keys():  # noqa: SIM118 - mappings that are no dict
            yield from _sizes(torch, thing[key])
    elif isinstance(thing, (list, tuple)):
        yield len(thing)
        for one in thing:
            yield from _sizes(torch, one)


def _is_array(thing):
    return hasattr(thing, "shape") and hasattr(thing, "dtype") and hasattr(thing, "__getitem__")


def _is_samples(torch, thing, size):
    """True for a list with an entry for each sample; fields of a batch are tensors that hold all samples themselves."""
    if not isinstance(thing, (list, tuple)) or hasattr(thing, "_fields") or not thing:
        return False
    fields = [one for one in thing if isinstance(one, torch.Tensor) or _is_array(one)]
    if any(size in _shape(one)[:2] for one in fields):
        return False
    return len(thing) == size


def _leaves(torch, thing, size, found):
    if isinstance(thing, torch.Tensor):
        if thing.is_nested or thing.layout is not torch.strided:
            raise Unsplittable("its batches hold sparse or nested tensors")
        found.append(thing)
    elif _is_array(thing) or _is_samples(torch, thing, size):
        found.append(thing)
    elif hasattr(thing, "batch_sizes") and hasattr(thing, "sorted_indices"):
        raise Unsplittable("its batches are packed sequences")
    elif hasattr(thing, "keys") and hasattr(thing, "__getitem__"):
        for key in thing.keys():  # noqa: SIM118 - mappings that are no dict
            _leaves(torch, thing[key], size, found)
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            _leaves(torch, one, size, found)
    elif thing is not None and not isinstance(thing, (int, float, str, bytes, bool)):
        raise Unsplittable("a %s in its batches can't be cut" % type(thing).__name__)


def _rebuilt(torch, thing, size, cut):
    if isinstance(thing, torch.Tensor) or _is_array(thing) or _is_samples(torch, thing, size):
        return cut(thing)
    if hasattr(thing, "keys") and hasattr(thing, "__getitem__"):
        pairs = [(key, _rebuilt(torch, thing[key], size, cut)) for key in thing.keys()]  # noqa: SIM118
        if thing.__class__ is dict:
            return dict(pairs)
        new = copy.copy(thing)
        for key, value in pairs:
            new[key] = value
        return new
    if isinstance(thing, (list, tuple)):
        parts = [_rebuilt(torch, one, size, cut) for one in thing]
        return thing.__class__(*parts) if hasattr(thing, "_fields") else thing.__class__(parts)
    return thing
