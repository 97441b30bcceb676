"""What is known of one loader and of the loop that trains with it, learned from the chunks of its first batch.

How its batches are cut, what a chunk counts for, and which batch is in hand.
"""

import copy

from ...heal.leaves import Unsplittable
from . import reduction as shares
from .reduction import Reading

_MAX_PASSES_UNTRAINED = 2  # after which a loader is known not to be trained with


class LoaderProfile:
    """Whether and how the batches of a loader can be handed out in chunks."""

    def __init__(self, torch, loader):
        self.torch = torch
        self.cutter = Cutter(torch, loader.batch_size)
        self.trained = None  # whether its batches are followed by a backward
        self.passes_untrained = 0
        self.looked = self.settled = False
        self.declined = ""  # why not
        self.changed = ""  # what is not the same, where that is allowed
        self.updates = 0
        self.reported_chunks = 0  # how many they were when that was last reported
        self.iterations = 0  # of the last pass, to its end
        self.redo = False  # what was learned from the first chunks asks for another go
        self.rules, self.readings = {}, {}  # of each backward of a chunk, in order
        self.candidates = {}  # the rules that were true of all chunks so far

    def not_trained(self):
        """No backward has followed a batch: evaluations, or a look at the data before they are learnt from."""
        if self.trained is None:
            self.trained = False
            self.passes_untrained += 1

    def begins(self):
        """A new pass: one without a backward does not yet say that all are."""
        if self.trained is False and self.passes_untrained < _MAX_PASSES_UNTRAINED:
            self.trained = None

    def rule(self, loader_pass, number, root):
        """What a chunk counts for, by its backward; raises where no rule is true."""
        if self.settled:
            return self.rules.get(number, self.rules.get(0, "samples"))
        reading = Reading(root, loader_pass.rows)
        if loader_pass.at == 0 or number not in self.readings:
            self.readings[number] = reading
            return self.rules.setdefault(number, reading.guess)
        bounds = loader_pass.bounds[0], loader_pass.bounds[loader_pass.at]
        found = shares.settle(self.torch, self.readings[number], reading, loader_pass.leaves, self.cutter.axes, bounds)
        if found is None:
            return self.rules[number]
        known = [rule for rule in self.candidates.get(number, found) if rule in found]
        if not known:
            raise Unsplittable("the loss is made up in another way in each chunk of a batch")
        self.candidates[number] = known
        if self.rules[number] not in known:  # each time with fewer candidates: it comes to an end
            self.rules[number] = known[0]
            self.redo = True
        return self.rules[number]

    def share(self, loader_pass, rule):
        """What the gradient of the present chunk counts for in the full batch's."""
        found = loader_pass.shares.get((rule, loader_pass.at))
        if found is None:
            begin, end = loader_pass.bounds[loader_pass.at]
            found = shares.share(self.torch, rule, loader_pass.leaves, loader_pass.size, begin, end)
            loader_pass.shares[rule, loader_pass.at] = found
        return found

    def forget(self):
        """Before another go: the rules that were found stay."""
        self.readings, self.redo = {}, False


# --- One pass over a loader whose batches are handed out in chunks: the batch in hand, and the place in it


class LoaderPass:
    """Made when a pass begins; lives as long as its iterator."""

    def __init__(self, loader, profile):
        self.loader, self.profile = loader, profile
        self.open = True
        self.cut = False  # batches of this pass are handed out in chunks
        self.led = False  # and the loop goes by them: where several loaders are drawn from, by the first
        self.drawn = 0  # batches
        self.chunks_learnt = 0  # those that were followed by a backward
        self.handed = 0  # chunks and batches that the loop was given
        self.extra = 0  # chunks that were handed out once more
        self.rewound = False  # the batch in hand is to be begun with once more
        self.batch = self.leaves = None
        self.size, self.bounds, self.at = 0, [], -1
        self.shares = {}
        self.abandoned = None  # tells when its iterator is gone

    def take(self, batch, bounds, size, leaves):
        """A new batch, of which nothing has been handed out yet."""
        self.batch, self.bounds, self.size, self.leaves = batch, bounds, size, leaves
        self.at = -1
        self.shares = {}
        if not self.cut:
            self.cut, self.chunks_learnt = True, 0  # batches before it were handed out as they came

    @property
    def pending(self):
        return self.batch is not None and self.at + 1 < len(self.bounds)

    @property
    def is_last_chunk(self):
        return self.at + 1 >= len(self.bounds)

    @property
    def to_come(self):
        """Chunks of the batch in hand."""
        return len(self.bounds) - self.at - 1 if self.batch is not None else 0

    @property
    def rows(self):
        begin, end = self.bounds[self.at]
        return end - begin

    def next_chunk(self):
        self.at += 1
        self.handed += 1
        return self.profile.cutter.chunk(self.batch, self.size, *self.bounds[self.at])

    def rest(self):
        """All that has not been handed out, at once."""
        begin = self.bounds[self.at + 1][0]
        self.bounds = [*self.bounds[: self.at + 1], (begin, self.size)]
        return self.next_chunk()

    def again(self, full_batch):
        """Begin with the same batch once more, in chunks or as it came."""
        self.extra += self.at + 1
        self.chunks_learnt, self.at, self.rewound = 0, -1, False
        if not full_batch:
            return self.next_chunk()
        batch = self.batch
        self.handed += 1
        self.drop()
        return batch

    def drop(self):
        self.batch = self.leaves = None
        self.bounds, self.at = [], -1


def bounds_of(size, chunks, min_rows, uneven):
    """Where a batch is cut; the first two chunks of an uneven one differ in size."""
    chunks = max(1, min(chunks, size // min_rows))
    edges = [size * n // chunks for n in range(chunks + 1)]
    if uneven and chunks > 1 and edges[1] - edges[0] == edges[2] - edges[1] and edges[1] > 2 * min_rows:
        edges[1] -= 1
    return [(edges[n], edges[n + 1]) for n in range(chunks)]


# --- A collated batch cut along its samples: tensors, arrays and lists within tuples, lists and dictionaries
# Along which axis each tensor holds the samples is learned on the first batch, by the loader's own batch size: the last
# batch of a pass may be smaller. What belongs to no sample is handed to every chunk.


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

    def chunk(self, batch, size, begin, end):
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
        cut_ones = [_rebuilt(torch, one, size, cut) for one in thing]
        return thing.__class__(*cut_ones) if hasattr(thing, "_fields") else thing.__class__(cut_ones)
    return thing
