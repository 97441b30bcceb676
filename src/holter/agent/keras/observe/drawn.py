"""How large the batches are that a traced step draws by itself, from an iterator that it is handed.

Keras's `fit` draws its data inside the step, so nobody outside sees their shapes. But tf.data's own model of the
pipeline counts the elements and bytes that left it: between two steps, the bytes of one batch. Asking costs a fraction
of a millisecond, so it is done while sizes are new, and after a step that took long. The workers of a `PyDataset` have
no such model, but they make one batch at a time, and in Python.
"""

import sys

_LOOKS = 20  # at sizes that were seen before, until there is no more asking


class Drawn:
    """What one function has drawn so far."""

    def __init__(self, tensorflow, feed):
        self.tf = tensorflow
        self.feed = feed
        self.pipeline = None
        self.varies = self.refused = False
        self.by_hand = False  # the batches are made in Python, one for each step
        self.elements = self.bytes = 0
        self.fresh = True  # nothing was drawn since the last look but by the step that is over
        self.looks = _LOOKS

    def idle(self, iterator, slow):
        """True where there is nothing to ask: sizes that can't change, or have not for long."""
        if self.pipeline != id(iterator):
            self.pipeline = id(iterator)  # each epoch has its own
            self.varies = _varies(self.tf.nest.flatten(iterator.element_spec))
            self.elements = self.bytes = 0
            self.fresh = True
        if self.varies and (self.by_hand or (not self.refused and (self.looks or slow))):
            return False
        self.fresh = False
        return True

    def batch(self, iterator):
        """What the step has drawn, as something that can be compared; None where that can't be known."""
        if self.by_hand:
            return self.feed.shapes or None
        counted = self._read(iterator)
        if counted is None:
            return None
        if counted[0] < self.elements:
            self.elements = self.bytes = 0  # another pipeline at the same address
        elements, size = counted[0] - self.elements, counted[1] - self.bytes
        (self.elements, self.bytes), fresh, self.fresh = counted, self.fresh, True
        self.looks = max(0, self.looks - 1) if fresh else _LOOKS
        return (elements, size) if fresh and elements else None

    def _read(self, iterator):
        try:
            if sys.modules["tensorflow.python.eager.context"].context().is_async():
                return None  # asking would wait for what is under way
            model = self.tf.data.experimental.get_model_proto(iterator)
        except Exception:
            self.refused = True  # autotuning is off: there is no such model
            if self.feed is not None and self.feed.kind == "pydataset":
                self.by_hand, self.feed.shapes = True, ()
            return None
        root = model.nodes[model.output]
        return root.num_elements, root.bytes_produced

    def met_new(self, batch):
        """A batch was not seen before: its size as a text, and more will be asked for."""
        self.looks = _LOOKS
        return str(batch[0]) if self.by_hand else "%d bytes" % batch[1]


def _varies(specs):
    """True where a dimension is open besides the batch's own."""
    for spec in specs:
        shape = getattr(spec, "shape", None)
        if shape is not None and (shape.rank is None or None in shape.as_list()[1:]):
            return True
    return False
