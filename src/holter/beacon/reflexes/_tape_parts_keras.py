"""A step with a tape in parts (TensorFlow): its tensors cut along the batch, and what it returns put together.

The gradients are gathered as those of a `train_step` (`_gather_keras`). How what the step returns is made up, whether a
value for each sample, a mean over them or a sum, is seen in the same few samples; so is what its metrics are told.
"""

from ._gather_keras import Gather
from ._leaves import Unsplittable
from ._tape_deferred_keras import Deferred

_CLOSE = 1e-3
_MIXED = 0.25  # with BatchNormalization, whose statistics are those of the part
_NOISE = 3.0  # times what two runs of the same samples differ by


class Form:
    """What a step is called with but for its tensors: the places where they go, and the rest."""

    def __init__(self, tf, given, flat):
        self.tf = tf
        self.places = [n for n, leaf in enumerate(flat) if _is_tensor(tf, leaf)]
        self.rest = [None if n in self.places else leaf for n, leaf in enumerate(flat)]
        self.structure = tf.nest.map_structure(lambda _: None, given)

    def filled(self, tensors):
        """The arguments with these tensors in them."""
        flat = list(self.rest)
        for place, tensor in zip(self.places, tensors):  # noqa: B905
            flat[place] = tensor
        return self.tf.nest.pack_sequence_as(self.structure, flat)

    def is_like(self, other):
        """Whether what is no tensor is the same: it is a part of what was traced."""
        return len(self.rest) == len(other.rest) and all(
            one is two or (type(one) is type(two) and isinstance(one, (int, float, str)) and one == two)
            for one, two in zip(self.rest, other.rest)  # noqa: B905
        )


class Arguments:
    """What a step was called with; the tensors that have an entry for each sample can be cut."""

    def __init__(self, tf, args, kwargs):
        self.tf, given = tf, (args, kwargs)
        flat = tf.nest.flatten(given)
        self.form = Form(tf, given, flat)
        self.tensors = [_as_tensor(tf, flat[n]) for n in self.form.places]
        sizes = [int(tensor.shape[0]) for tensor in self.tensors if tensor.shape.rank]
        self.size = sizes[0] if sizes else 0
        self.is_cut = [bool(tensor.shape.rank) and int(tensor.shape[0]) == self.size for tensor in self.tensors]
        if self.size < 2:
            raise Unsplittable("it is called without a batch of samples")

    def cut(self, begin, end):
        """The tensors, with some samples."""
        pairs = zip(self.tensors, self.is_cut)  # noqa: B905
        return [tensor[begin:end] if is_cut else tensor for tensor, is_cut in pairs]


class TapeParts(Gather):
    """Of one step; made when the first batch does not fit."""

    def __init__(self, own, pieces):
        self.form = pieces.form
        self.returned = []  # by the few samples that are looked at first
        self.joins = None  # how what is returned is put together, once that is known
        self.defers = False  # metrics are told once, of the whole batch
        self.deferred, self.clips = None, []
        super().__init__(own, pieces)

    def values(self):
        return [(variable, self.tf.identity(variable)) for variable in self.own.changing]

    def has_norms(self):
        return any("moving_" in variable.name for variable in self.own.changing)

    # --- a part -------------------------------------------------------------------------------------------

    def step(self, data, noted):
        """What the step returns, and what it tells its metrics."""
        args, kwargs = self.form.filled(data)
        self.deferred = Deferred(self.tf, self.own.split.keras.metrics.Metric, keeps_metrics=not self.defers)
        with self.own.noting(noted), self.deferred:
            returned = self.own.body()(*args, **kwargs)
        return returned, self.deferred.tensors() if self.joins is None or self.defers else []

    def caught(self, data):
        logs, found = super().caught(data)
        self.clips = self.deferred.places_of(found)
        return logs, found

    def probing(self, data):
        logs, found = self.caught(data)
        return self.dense(found), logs

    def gradients(self, data):
        found, logs = self.probe(data)
        self.returned.append(self.tf.nest.flatten(logs))
        return self.in_a_row(found)

    # --- a batch ------------------------------------------------------------------------------------------

    def ready(self, cuts):
        for cut in cuts:
            self.part.get_concrete_function(cut, self.tf.constant(0.0))
        return self.values()

    def try_out(self, cut):
        self.part(cut, self.tf.constant(0.0))

    forget = Gather.undo

    def run(self, pieces):
        """All parts and one update; what the step would have returned."""
        before = self.values()
        done = self.all_parts(pieces, before)
        parts = [self.tf.nest.flatten(logs) for _, logs, _ in done]
        shares = [rows / pieces.size for rows, _, _ in done]
        joined = [join(self.tf, same, shares) for join, same in zip(self.joins, zip(*parts))]  # noqa: B905
        returned, told = self.tf.nest.pack_sequence_as(done[-1][1], joined)
        try:
            self.close([sparse for _, _, sparse in done], told)
        except Exception:
            self.undo(before)
            raise
        return returned

    def closing(self, sparse, told):
        pairs = self.pairs(sparse)
        gradients = [gradient for gradient, _ in pairs]
        for places, act in self.clips:
            for place, clipped in zip(places, act([gradients[place] for place in places])):  # noqa: B905
                gradients[place] = clipped
        self.optimizer.apply(gradients, [variable for _, variable in pairs])
        self.empty()
        if self.defers:
            self.deferred.tell(told)

    # --- what it is ---------------------------------------------------------------------------------------

    def take_sums(self):
        """What the step returns is put together by what it is itself."""

    def learn(self, pieces):
        super().learn(pieces)
        rough = _MIXED if self.has_norms() else _CLOSE
        self.joins = [_join(self.tf, *same, rough) for same in zip(*self.returned[-4:])]  # noqa: B905
        self.defers = last not in self.joins
        if not self.defers:
            told = len(self.deferred.tensors())
            self.joins = self.joins[: len(self.joins) - told]
        self.returned = []
        if self.exact and last in self.joins:
            self.exact, self.because = False, "what it returns and its metrics are told part by part"


def _is_tensor(tf, leaf):
    if isinstance(leaf, tf.SparseTensor):
        raise Unsplittable("a sparse batch can't be cut")
    # A scalar of numpy's is a number, and a variable is no batch.
    return isinstance(leaf, (tf.Tensor, tf.RaggedTensor)) or (
        hasattr(leaf, "__array__") and bool(getattr(leaf, "ndim", 0))
    )


def _as_tensor(tf, leaf):
    return leaf if isinstance(leaf, tf.RaggedTensor) else tf.convert_to_tensor(leaf)


# --- how what a step returns is put together ------------------------------------------------------------------


def each(tf, values, _shares):
    """A value for each sample."""
    return tf.concat(values, 0)


def mean(tf, values, shares):
    if not values[0].dtype.is_floating:
        return values[-1]  # a number that hangs on no sample
    return tf.add_n([value * tf.cast(share, value.dtype) for value, share in zip(values, shares)])  # noqa: B905


def total(tf, values, _shares):
    return tf.add_n(values)


def last(_tf, values, _shares):
    """What is neither, such as the result of a metric, which knows of all parts."""
    return values[-1]


def _join(tf, one, again, other, both, rough):
    """By what it was for some samples, for the same once more, for others, and for both together."""
    if one is None or not hasattr(one, "shape"):
        return last
    if one.shape.rank and one.shape[0] and both.shape[0] == one.shape[0] + other.shape[0]:
        return each
    if one.shape != both.shape or other.shape != both.shape or not (one.dtype.is_floating or one.dtype.is_integer):
        return last
    one, again, other, both = (tf.cast(value, tf.float64) for value in (one, again, other, both))

    def distance(left, right):
        return float(tf.reduce_max(tf.abs(left - right)))

    size = float(tf.reduce_max(tf.abs(one) + tf.abs(other)))
    off, join = min(
        (distance(both, (one + other) / 2), mean), (distance(both, one + other), total), key=lambda by: by[0]
    )
    return join if off <= rough * size + _NOISE * distance(one, again) + 1e-12 else last
