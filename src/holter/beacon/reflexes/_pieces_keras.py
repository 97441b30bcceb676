"""A batch of Keras' cut along its first axis, and what the parts give put together again."""

from ._leaves import Unsplittable


def plain(tf, data):
    """A batch; newer versions of Keras hand on a missing part of it as an empty optional."""
    if any(isinstance(leaf, tf.experimental.Optional) for leaf in tf.nest.flatten(data)):
        return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, data)
    return data


class Pieces:
    """The tensors of `x`, `y` and `sample_weight` of one batch."""

    def __init__(self, tf, data):
        self.tf, self.data = tf, data
        self.leaves = [self._tensor(leaf) for leaf in tf.nest.flatten(data)]
        sizes = {int(leaf.shape[0]) for leaf in self.leaves if leaf is not None}
        if len(sizes) != 1:
            raise Unsplittable("its inputs and targets do not all have one entry for each sample")
        self.size = sizes.pop()

    def _tensor(self, leaf):
        tf = self.tf
        if leaf is None or isinstance(leaf, tf.RaggedTensor):
            return leaf
        if isinstance(leaf, tf.SparseTensor):
            raise Unsplittable("a sparse batch can't be cut")
        leaf = tf.convert_to_tensor(leaf)
        if not leaf.shape.rank:
            raise Unsplittable("its inputs and targets do not all have one entry for each sample")
        return leaf

    def cut(self, begin, end):
        """The part of the batch from one sample to another."""
        cut = [None if leaf is None else leaf[begin:end] for leaf in self.leaves]
        return self.tf.nest.pack_sequence_as(self.data, cut)

    def whole(self):
        return self.tf.nest.pack_sequence_as(self.data, self.leaves)


def join(tf, parts):
    """One structure of outputs from those of all parts, with the masks that Keras keeps on them."""
    flat = [tf.nest.flatten(part) for part in parts]
    joined = [tf.concat(same, 0) for same in zip(*flat)]  # noqa: B905
    return tf.nest.pack_sequence_as(parts[0], joined)


def masks_of(tf, outputs):
    return [getattr(output, "_keras_mask", None) for output in tf.nest.flatten(outputs)]


def put_masks(tf, outputs, masks):
    for output, mask in zip(tf.nest.flatten(outputs), masks):  # noqa: B905
        if mask is not None:
            output._keras_mask = mask


def mixes_samples(tf, model, x):
    """Whether a sample's output depends on which others are in the batch: two together against one by one."""
    two = tf.nest.map_structure(lambda leaf: leaf[:2], x)
    one, other = (tf.nest.map_structure(lambda leaf, n=n: leaf[n : n + 1], x) for n in (0, 1))
    training = {"training": False} if getattr(model, "_call_has_training_arg", False) else {}
    together = tf.nest.flatten(model(two, **training))
    apart = tf.nest.flatten(join(tf, [model(one, **training), model(other, **training)]))
    for left, right in zip(together, apart):  # noqa: B905
        if left.shape != right.shape:
            return True
        if left.dtype.is_floating:
            left, right = tf.cast(left, tf.float32), tf.cast(right, tf.float32)
            room = 1e-2 * float(tf.reduce_max(tf.abs(left))) + 1e-6
            if float(tf.reduce_max(tf.abs(left - right))) > room:
                return True
    return False
