"""The proof that a Keras model may be run in micro-batches, on a few samples and undone.

The step of all of them and the steps of two uneven chunks must give the same gradient for every weight, scaled by
samples, by their weights, by a mask or as a sum, and write the same into every other variable. Layers that compare
samples or draw numbers by design (BatchNormalization, Dropout and their kin of Keras' own) do as in inference
meanwhile, and what they change is named: so that nothing but they may differ. `exact` is said only without them.
"""

from ...heal.leaves import Unsplittable

_MAX_SAMPLES = 8
_TOLERANCE = {"float64": 1e-6, "float32": 2e-4, "bfloat16": 5e-2, "float16": 2e-2}
_SHARES = ("samples", "weights", "mask", "sum")


class Proof:
    """How the gradients and logs of micro-batches are put together, and what that keeps."""

    def __init__(self, tf, batch, share, joins, keeps, because):
        self.tf, self.batch, self.share, self.joins = tf, batch, share, joins
        self.keeps, self.because = keeps, because

    def weight(self, chunk, out):
        return float(_weight(self.tf, self.batch, self.share, chunk, out))

    def logs(self, done, total):
        """Results of metrics are those after the last micro-batch; what else a step gives is the mean."""
        tf, last = self.tf, done[-1][1]["logs"]
        flat = [tf.nest.flatten(out["logs"]) for _, out in done]
        shares = [weight / total for weight, _ in done]
        joined = [
            same[-1] if join == "last" else tf.add_n([v * tf.cast(s, v.dtype) for v, s in zip(same, shares)])  # noqa: B905
            for join, same in zip(self.joins, zip(*flat))  # noqa: B905
        ]
        return tf.nest.pack_sequence_as(last, joined)


def prove(tf, model, step, batch, is_oom):
    """Raise where micro-batches of this model would be another training."""
    if any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
        raise Unsplittable("a stateful layer keeps a state for each sample of the batch")
    norms, random = _known_to_differ(model)
    if norms or random:
        step = type(step)(tf, model, step.keras, batch, [*norms, *random], step.before)
    samples = min(_MAX_SAMPLES, batch.size)
    if samples < 2:
        raise Unsplittable("the batch has a single sample")
    while True:
        try:
            return _compare(tf, model, step, batch, samples, norms, random)
        except Exception as error:
            if not is_oom(error):
                raise
        samples //= 2
        if samples < 2:
            raise Unsplittable("not even two samples fit")


def _compare(tf, model, step, batch, samples, norms, random):
    metrics = {id(getattr(one, "_value", one)) for one in model.metrics_variables}
    before = [(variable, tf.identity(variable)) for variable in step.captured]
    at = samples * 3 // 8 or 1
    chunks = [batch.chunk(0, at), batch.chunk(at, samples)]
    try:
        together = step(batch.chunk(0, samples))
        after = [tf.identity(variable) for variable in step.written]
        put_back(before)
        apart = [step(chunk) for chunk in chunks]
        differing = [
            variable
            for variable, one in zip(step.written, after)  # noqa: B905
            if not _same(tf, one, variable, _tolerance(variable))
        ]
        own = {id(one) for one in step.captured} - {id(one) for one in step.written}
        changed = [v for v, value in before if id(v) in own and not bool(tf.reduce_all(tf.equal(v, value)))]
    finally:
        put_back(before)
    if changed:
        raise Unsplittable("its step writes %s without its optimizer" % changed[0].name)
    others = [variable for variable in differing if id(variable) not in metrics]
    if others:
        raise Unsplittable("its step writes %s, which would be another" % others[0].name)
    share = next((by for by in _SHARES if _adds_up(tf, batch, by, together, apart, chunks)), None)
    if share is None:
        raise Unsplittable("the gradients of two chunks do not add up to those of the full batch")
    weights = [_weight(tf, batch, share, chunk, out) for chunk, out in zip(chunks, apart)]  # noqa: B905
    joins, logs_agree = _joins(tf, together["logs"], [out["logs"] for out in apart], weights)
    because = ""
    if norms:
        because = "BatchNormalization takes its statistics from each chunk"
    elif random:
        because = "random layers such as Dropout draw anew for each chunk"
    elif differing or not logs_agree:
        because = "what it tells of its metrics is made of those of the chunks"
    return Proof(tf, batch, share, joins, "equivalent" if because else "exact", because)


def _known_to_differ(model):
    """The layers of Keras' own that compare samples by their statistics, and those that draw random numbers."""
    norms, random = [], []
    for layer in model._flatten_layers():
        kinds = [cls.__name__ for cls in type(layer).__mro__]
        if type(layer).__module__.partition(".")[0] != "keras" or not getattr(layer, "_call_has_training_arg", False):
            continue
        if "BatchNormalization" in kinds:
            if layer.trainable:
                norms.append(layer)
        elif getattr(layer, "_seed_generators", None) and _draws(layer):
            random.append(layer)
    return norms, random


def _draws(layer):
    if hasattr(layer, "recurrent_dropout"):
        return bool(layer.dropout or layer.recurrent_dropout)
    return bool(getattr(layer, "rate", 1.0))


def _weight(tf, batch, share, chunk, out):
    """The share of a chunk in the loss, up to a factor that all chunks have in common."""
    if share in ("samples", "sum"):
        return chunk[0].shape[0]
    found = batch.sample_weights(chunk) if share == "weights" else out.get("mask")
    return None if found is None else float(tf.reduce_sum(tf.cast(found, tf.float32)))


def _adds_up(tf, batch, share, together, apart, chunks):
    weights = [_weight(tf, batch, share, chunk, out) for chunk, out in zip(chunks, apart)]  # noqa: B905
    if None in weights or not sum(weights):
        return False
    shares = [1.0, 1.0] if share == "sum" else [weight / sum(weights) for weight in weights]
    dense = [{n: tf.convert_to_tensor(g) for n, g in out["gradients"].items()} for out in (together, *apart)]
    largest = max(float(tf.reduce_max(tf.abs(tf.cast(g, tf.float32)))) for g in dense[0].values())
    if not largest:
        raise Unsplittable("its step has no gradients to compare chunks by")
    for place, gradient in dense[0].items():
        added = sum(one[place] * tf.cast(by, gradient.dtype) for one, by in zip(dense[1:], shares))  # noqa: B905
        if not _same(tf, gradient, added, _tolerance(gradient), 1e-2 * largest):
            return False
    return True


def _joins(tf, together, apart, weights):
    """How each of a step's logs is had, and whether all are what they would have been."""
    joins, agree = [], True
    one, two = (tf.nest.flatten(logs) for logs in apart)
    share = weights[0] / sum(weights)
    for value, first, last in zip(tf.nest.flatten(together), one, two):  # noqa: B905
        is_number = tf.is_tensor(value) and value.dtype.is_floating
        tolerance = _tolerance(value) if is_number else 0.0
        if not is_number or _same(tf, value, last, tolerance):
            joins.append("last")
            continue
        mean = first * tf.cast(share, value.dtype) + last * tf.cast(1.0 - share, value.dtype)
        joins.append("mean" if first.shape == last.shape == value.shape else "last")
        agree = agree and joins[-1] == "mean" and _same(tf, value, mean, tolerance)
    return joins, agree


def _tolerance(value):
    return _TOLERANCE.get(value.dtype.name, 0.0)


def _same(tf, one, other, tolerance, least=0.0):
    """Whether two tensors are the same, within a share of the larger of both or of what is given."""
    one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
    if one.shape != other.shape:
        return False
    if bool(tf.reduce_all(tf.equal(one, other))):
        return True
    if not one.dtype.is_floating:
        return False
    one, other = tf.cast(one, tf.float64), tf.cast(other, tf.float64)
    size = max(float(tf.reduce_max(tf.abs(one))), float(tf.reduce_max(tf.abs(other))), least)
    return float(tf.reduce_max(tf.abs(one - other))) <= tolerance * size + 1e-30


def put_back(values):
    """Give variables the values that they had."""
    for variable, value in values:
        variable.assign(value)
