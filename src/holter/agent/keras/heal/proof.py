"""The proof that a Keras model may be run in micro-batches, on a few samples and undone.

The step of all of them and the steps of two uneven parts must give the same gradient for every weight, weighed by
samples, by their weights, by a mask or as a sum, and write the same into every other variable. Layers that compare
samples or draw numbers by design (BatchNormalization, Dropout and their kin of Keras' own) do as in inference
meanwhile, and what they change is named: so that nothing but they may differ. `exact` is said only without them.
"""

from ...heal.leaves import Unsplittable

_FEW = 8
_CLOSE = {"float64": 1e-6, "float32": 2e-4, "bfloat16": 5e-2, "float16": 2e-2}
_SHARES = ("samples", "weights", "mask", "sum")


class Proof:
    """How the gradients and logs of micro-batches are put together, and what that keeps."""

    def __init__(self, tf, batch, share, joins, keeps, because):
        self.tf, self.batch, self.share, self.joins = tf, batch, share, joins
        self.keeps, self.because = keeps, because

    def weight(self, cut, out):
        return float(_weight(self.tf, self.batch, self.share, cut, out))

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


def prove(tf, model, part, batch, is_oom):
    """Raise where micro-batches of this model would be another training."""
    states = [layer for layer in model._flatten_layers() if getattr(layer, "stateful", False)]
    if states:
        raise Unsplittable("a stateful layer keeps a state for each sample of the batch")
    norms, random = _known(model)
    if norms or random:
        part = type(part)(tf, model, part.keras, batch, [*norms, *random], part.before)
    few = min(_FEW, batch.size)
    if few < 2:
        raise Unsplittable("the batch has a single sample")
    while True:
        try:
            return _compare(tf, model, part, batch, few, norms, random)
        except Exception as error:
            if not is_oom(error):
                raise
        few //= 2
        if few < 2:
            raise Unsplittable("not even two samples fit")


def _compare(tf, model, part, batch, few, norms, random):
    metrics = {id(getattr(one, "_value", one)) for one in model.metrics_variables}
    before = [(variable, tf.identity(variable)) for variable in part.captured]
    at = few * 3 // 8 or 1
    cuts = [batch.cut(0, few), batch.cut(0, at), batch.cut(at, few)]
    try:
        whole = part(cuts[0])
        after = [tf.identity(variable) for variable in part.written]
        _put_back(before)
        parts = [part(cut) for cut in cuts[1:]]
        wrong = [
            variable
            for variable, one in zip(part.written, after)  # noqa: B905
            if not _same(tf, one, variable, _room(variable))
        ]
        own = {id(one) for one in part.captured} - {id(one) for one in part.written}
        changed = [v for v, value in before if id(v) in own and not bool(tf.reduce_all(tf.equal(v, value)))]
    finally:
        _put_back(before)
    if changed:
        raise Unsplittable("its step writes %s without its optimizer" % changed[0].name)
    others = [variable for variable in wrong if id(variable) not in metrics]
    if others:
        raise Unsplittable("its step writes %s, which would be another" % others[0].name)
    share = next((by for by in _SHARES if _adds_up(tf, batch, by, whole, parts, cuts[1:])), None)
    if share is None:
        raise Unsplittable("the gradients of two parts do not make those of the whole")
    weights = [_weight(tf, batch, share, cut, out) for cut, out in zip(cuts[1:], parts)]  # noqa: B905
    joins, told = _joins(tf, whole["logs"], [out["logs"] for out in parts], weights)
    because = ""
    if norms:
        because = "BatchNormalization takes its statistics from each part"
    elif random:
        because = "random layers such as Dropout draw anew for each part"
    elif wrong or not told:
        because = "what it tells of its metrics is made of those of the parts"
    return Proof(tf, batch, share, joins, "equivalent" if because else "exact", because)


def _known(model):
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


def _weight(tf, batch, share, cut, out):
    """The share of a part in the loss, up to a factor that all parts have in common."""
    if share in ("samples", "sum"):
        return cut[0].shape[0]
    found = batch.sample_weights(cut) if share == "weights" else out.get("mask")
    return None if found is None else float(tf.reduce_sum(tf.cast(found, tf.float32)))


def _adds_up(tf, batch, share, whole, parts, cuts):
    weights = [_weight(tf, batch, share, cut, out) for cut, out in zip(cuts, parts)]  # noqa: B905
    if None in weights or not sum(weights):
        return False
    shares = [1.0, 1.0] if share == "sum" else [weight / sum(weights) for weight in weights]
    dense = [{n: tf.convert_to_tensor(g) for n, g in out["gradients"].items()} for out in (whole, *parts)]
    largest = max(float(tf.reduce_max(tf.abs(tf.cast(g, tf.float32)))) for g in dense[0].values())
    if not largest:
        raise Unsplittable("its step has no gradients to tell parts by")
    for place, gradient in dense[0].items():
        added = sum(one[place] * tf.cast(by, gradient.dtype) for one, by in zip(dense[1:], shares))  # noqa: B905
        if not _same(tf, gradient, added, _room(gradient), 1e-2 * largest):
            return False
    return True


def _joins(tf, whole, parts, weights):
    """How each of a step's logs is had, and whether all are what they would have been."""
    joins, told = [], True
    one, two = (tf.nest.flatten(part) for part in parts)
    share = weights[0] / sum(weights)
    for value, first, last in zip(tf.nest.flatten(whole), one, two):  # noqa: B905
        is_number = tf.is_tensor(value) and value.dtype.is_floating
        room = _room(value) if is_number else 0.0
        if not is_number or _same(tf, value, last, room):
            joins.append("last")
            continue
        mean = first * tf.cast(share, value.dtype) + last * tf.cast(1.0 - share, value.dtype)
        joins.append("mean" if first.shape == last.shape == value.shape else "last")
        told = told and joins[-1] == "mean" and _same(tf, value, mean, room)
    return joins, told


def _room(value):
    return _CLOSE.get(value.dtype.name, 0.0)


def _same(tf, one, other, room, least=0.0):
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
    return float(tf.reduce_max(tf.abs(one - other))) <= room * size + 1e-30


def _put_back(values):
    for variable, value in values:
        variable.assign(value)
