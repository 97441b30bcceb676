"""Whether a batch will fit, told before its first step: on the CPU TensorFlow dies of memory without an error.

The sizes of the layers' outputs say when there is no need to look closer. Otherwise two small parts of the batch are
run, nothing of them is kept, and what the larger took more than the smaller tells what the whole batch would take.
"""

import sys

from ._parts_keras import Parts

_CALM = 0.4  # of the room: an estimate below this needs no try
_SPARE = 0.9
_MARGIN = 1.25  # seen: a whole batch took up to 1.3 times what its parts told
_TARGET = 0.7  # of the room, for a part
_FLOAT = 4
_HELD_TWICE = 2  # an output for the backward pass, and its gradient
_INPUTS = 30  # times the batch's own size, for a model whose outputs are not known
_LARGER = 1.1


class TryOut:
    """Asked with each batch that is larger than all before."""

    def __init__(self, care):
        self.care, self.tf = care, care.tf
        self.growth, self.shape = Growth(), None
        self.off = not sys.platform.startswith("linux")
        self.calm = True  # the largest so far needs no more than a part of the room
        self.words = ""

    def wants(self, data):
        """Tell whether this batch has another shape than the one before: cheap enough for every step."""
        if self.off:
            return False
        shape = getattr(self.tf.nest.flatten(data)[0], "shape", None)
        before, self.shape = self.shape, shape
        return shape != before

    def rows_for(self, pieces):
        """How many samples a part of this batch may have; 0 where it fits as it is."""
        elements = sum(leaf.shape.num_elements() or 0 for leaf in pieces.leaves if hasattr(leaf, "shape"))
        if not self.growth.exceeds(elements):
            return 0
        if any(device.device_type != "CPU" for device in self.tf.config.list_logical_devices()):
            self.off = True  # there it is caught
            return 0
        need = estimate(self.tf, self.care.model, pieces.size, elements)
        self.calm, rows, self.words, parts = foretell(pieces, need, lambda: Parts(self.care, pieces))
        if rows is None:
            self.off = True
        elif rows:
            self.care.parts = parts
        return rows or 0


class Growth:
    """Of batches of one kind: only one that is larger than all before has to be looked at."""

    def __init__(self):
        self.most = 0

    def exceeds(self, elements):
        if elements <= _LARGER * self.most:
            return False
        self.most = elements
        return True


def estimate(tf, model, samples, elements):
    """What a step would take if nothing that its layers give were ever freed."""
    weights = sum(weight.shape.num_elements() for weight in (w.value for w in model.trainable_weights))
    each = 0
    for layer in model._flatten_layers(include_self=False, recursive=False):
        try:
            shapes = [output.shape for output in tf.nest.flatten(layer.output)]
        except (AttributeError, ValueError):
            return unseen(elements) + _FLOAT * 2 * weights
        for shape in shapes:
            size = 1
            for n in shape[1:]:
                size *= n or 1
            each += size
    return _FLOAT * (_HELD_TWICE * each * samples + 2 * weights)


def unseen(elements):
    """The same of what can't be looked into, by the batch's own size."""
    return _FLOAT * _INPUTS * elements


def foretell(pieces, need, make_parts):
    """Whether a batch is small beside the room, by what it might need; otherwise how many samples a part may have, why,
    and the parts that this was tried with. 0 samples: all fit; None: the kernel tells nothing."""
    from . import _host_room as room

    left = room.left()
    if left is None or need < _CALM * left:
        return True, 0, "", None
    if pieces.size < 4:
        return False, 0, "", None
    few = max(2, min(pieces.size // 4, int(pieces.size * 0.15 * left / need)))
    parts = make_parts()
    rows, words = _rows_to_fit(room, parts, pieces, few)
    return False, rows, words, parts


def _rows_to_fit(room, parts, pieces, few):
    cuts = [pieces.cut(0, rows) for rows in (few // 2, few)]
    before = parts.ready(cuts)  # so that tracing is not counted
    pool = Pool(pieces.tf)
    # Some allocators keep what they once had: the second is counted from where the first began.
    base, took = room.held(), []
    if base is None:
        return None, ""
    for cut in cuts:
        pool.reset()
        parts.try_out(cut)
        took.append(max(0, room.highest() - base, pool.taken()))
    parts.forget(before)
    room.trim()
    each = _MARGIN * max((took[1] - took[0]) / (few - few // 2), 0.5 * took[1] / few)
    once = max(0.0, took[1] - each * few)
    need, left = once + each * pieces.size, max(room.left(), 0) + pool.spare
    if need < _SPARE * left:
        return 0, ""
    words = "would take %.2g GB where %.2g GB are left" % (need / 1e9, left / 1e9)
    rows = max(1, min(pieces.size // 2, int((_TARGET * left - once) / max(each, 1.0))))
    return -(-pieces.size // -(-pieces.size // rows)), words


class Pool:
    """TensorFlow's own memory on the CPU: with oneDNN it keeps what it once had, and the kernel sees nothing of it."""

    def __init__(self, tf):
        self.config = tf.config.experimental
        self.first, most = self._ask()
        self.spare = most - self.first  # it has that, and nobody uses it

    def _ask(self):
        try:
            found = self.config.get_memory_info("CPU:0")
        except ValueError:  # it takes from the C library, and gives back
            return 0, 0
        return found["current"], found["peak"]

    def reset(self):
        if self.first:
            self.config.reset_memory_stats("CPU:0")

    def taken(self):
        """The most since, above what was there at first."""
        return self._ask()[1] - self.first
