"""The step of one Keras model in parts: gradients gathered in variables of their own, written once at the end."""

from ._leaves import Unsplittable
from ._pieces_keras import join, masks_of, mixes_samples, put_masks
from ._step_keras import Stand, changing, settle, update

_CLOSE = 1e-3  # the parts' losses together against the whole batch's


class Parts:
    """Made when the first batch of a model does not fit."""

    def __init__(self, care, pieces):
        self.care, self.tf, self.model = care, care.tf, care.model
        if pieces.size > 1 and mixes_samples(self.tf, self.model, pieces.whole()[0]):
            raise Unsplittable("the model's output for a sample depends on the others of its batch")
        self.gathered = [self._like(weight) for weight in self.model.trainable_weights]
        self.changing = changing(self.model)
        self.missing = set()  # weights that the loss does not depend on
        self.by = None
        self.part = care.function(self._part)
        self.close = care.function(self._close)
        self.checked = self.tracks_size = False

    def _like(self, weight):
        return self.tf.Variable(self.tf.zeros(weight.shape, weight.value.dtype), trainable=False)

    def run(self, pieces, state):
        """All parts and the update; parts that do not fit are made smaller, those that did are not run again."""
        tf, care = self.tf, self.care
        before = [tf.identity(variable.value) for variable in self.changing]
        done, begin = [], 0
        while begin < pieces.size:
            end = min(pieces.size, begin + care.rows)
            try:
                done.append(self.part(*pieces.cut(begin, end)))
            except Exception as error:
                if not care.split.is_oom(error):
                    raise
                if end - begin == 1:
                    self.forget(before)
                    raise Unsplittable("a single sample does not fit") from None
                failed = error
            else:
                begin = end
                continue
            failed.__traceback__ = failed.__context__ = None
            care.rows = -(-(end - begin) // 2)
        if not self.checked:
            # Keras makes some of its trackers only when it first needs them.
            self.changing += [variable for variable in changing(self.model) if not _among(variable, self.changing)]
            before += [tf.zeros_like(variable.value) for variable in self.changing[len(before) :]]
            self._check(pieces, done, before)
        return self.close(pieces.whole(), done, before, state)

    def ready(self, cuts):
        """Trace what some parts will be run with; what they will change, to forget it again."""
        if hasattr(self.part, "get_concrete_function"):
            for cut in cuts:
                self.part.get_concrete_function(*cut)
        return [self.tf.identity(variable.value) for variable in self.changing]

    def try_out(self, cut):
        self.part(*cut)

    def forget(self, before):
        """Undo what the parts so far have written."""
        for gathered in self.gathered:
            gathered.assign(self.tf.zeros_like(gathered))
        for variable, value in zip(self.changing, before):  # noqa: B905
            variable.assign(value)

    def _part(self, x, y, sample_weight):
        tf = self.tf
        stand = Stand(self.model)
        self.care.split.train_step(stand, (x, y, sample_weight))
        self.tracks_size = "sample_weight" in stand.noted[1]  # since Keras 3.9 or so
        self.by = _weighing(self.model)
        masks = masks_of(tf, stand.y_pred)
        weight = self._weight(x, sample_weight, masks)
        gradients = [gradient for gradient, _ in stand.gradients]
        sparse = {}
        known = [gradient for gradient in gradients if gradient is not None]
        # Not before all of them are there: a part that fails has gathered nothing.
        with tf.control_dependencies([getattr(gradient, "values", gradient) for gradient in known]):
            for number, gradient in enumerate(gradients):
                if gradient is None:
                    self.missing.add(number)
                    continue
                scale = tf.cast(weight, gradient.dtype)
                if isinstance(gradient, tf.IndexedSlices):  # optimizers treat rows that are not in it otherwise
                    rows = tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
                    sparse[str(number)] = rows
                else:
                    self.gathered[number].assign_add(gradient * scale)
        extra = tf.add_n([tf.reduce_sum(loss) for loss in self.model.losses]) if self.model.losses else tf.zeros(())
        return {
            "y_pred": stand.y_pred,
            "masks": masks,
            "loss": stand.loss,
            "weight": weight,
            "extra": extra,
            "sparse": sparse,
        }

    def _weight(self, x, sample_weight, masks):
        """The share of a part in the loss, up to a factor that all parts have in common."""
        tf = self.tf
        if self.by == "sum":
            return tf.ones(())
        if self.by == "weights" and tf.is_tensor(sample_weight):
            return tf.reduce_sum(tf.cast(sample_weight, tf.float32))
        if len(masks) == 1 and masks[0] is not None:
            return tf.reduce_sum(tf.cast(masks[0], tf.float32))
        first = next(leaf for leaf in tf.nest.flatten(x) if leaf is not None)
        return tf.cast(tf.shape(first)[0], tf.float32)

    def _share(self, done):
        return self.tf.ones(()) if self.by == "sum" else self.tf.add_n([part["weight"] for part in done])

    def _loss(self, done, key="loss"):
        terms = [self.tf.cast(part[key], self.tf.float32) * part["weight"] for part in done]
        return self.tf.add_n(terms) / self._share(done)

    def _outputs(self, done):
        tf = self.tf
        y_pred = join(tf, [part["y_pred"] for part in done])
        same = zip(*[part["masks"] for part in done])  # noqa: B905
        put_masks(tf, y_pred, [None if masks[0] is None else tf.concat(masks, 0) for masks in same])
        return y_pred

    def _check(self, pieces, done, before):
        """Once: do the parts' losses make the loss of the whole batch? Not where it compares samples."""
        self.checked = True
        tf, model = self.tf, self.model
        x, y, sample_weight = pieces.whole()
        now = [tf.identity(variable.value) for variable in self.changing]
        y_pred = self._outputs(done)
        if any(not leaf.shape.rank or leaf.shape[0] != pieces.size for leaf in tf.nest.flatten(y_pred)):
            self.forget(before)
            raise Unsplittable("the model does not give one output for each sample")
        training = {"training": False} if model._call_has_training_arg else {}
        model(tf.nest.map_structure(lambda leaf: leaf[:1], x), **training)  # its own losses are those of a trace now
        if self.by == "sum" and model.losses:
            self.forget(before)
            raise Unsplittable("its loss is a sum, to which each part would add the regularization again")
        compute = getattr(model, "_compute_loss", model.compute_loss)
        loss = compute(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        extra = tf.add_n([tf.reduce_sum(one) for one in model.losses]) if model.losses else tf.zeros(())
        whole, parts = float(loss) - float(extra), float(self._loss(done)) - float(self._loss(done, "extra"))
        for variable, value in zip(self.changing, now):  # noqa: B905
            variable.assign(value)
        if abs(whole - parts) > _CLOSE * abs(whole) + 1e-6:
            self.forget(before)
            raise Unsplittable(
                "its loss is not made of the losses of its samples (%.6g, in parts %.6g)" % (whole, parts)
            )

    def _track_outputs(self, y, y_pred, sample_weight, before):
        """Losses of single outputs have been told of the parts: tell them of the batch instead."""
        tf, losses = self.tf, getattr(self.model, "_compile_loss", None)
        trackers = {id(variable) for metric in getattr(losses, "metrics", ()) for variable in metric.variables}
        if not trackers:
            return
        for variable, value in before:
            if id(variable) in trackers:
                variable.assign(value)
        if not tf.executing_eagerly():  # as in `fit`, where the size of a batch is not known to the graph
            y_pred = tf.nest.map_structure(
                lambda leaf: tf.raw_ops.PlaceholderWithDefault(input=leaf, shape=[None, *leaf.shape[1:]]), y_pred
            )
        losses(y, y_pred, sample_weight)

    def _gradient(self, number, gathered, done, share):
        if number in self.missing:
            return None
        share = self.tf.cast(share, gathered.dtype)
        rows = [part["sparse"].get(str(number)) for part in done]
        if rows[0] is None:
            return gathered / share
        values = self.tf.concat([one.values for one in rows], 0) / share
        return self.tf.IndexedSlices(values, self.tf.concat([one.indices for one in rows], 0), rows[0].dense_shape)

    def _close(self, data, done, before, state):
        tf, model = self.tf, self.model
        x, y, sample_weight = data
        y_pred, loss, share = self._outputs(done), self._loss(done), self._share(done)
        gradients = []
        for number, (weight, gathered) in enumerate(zip(model.trainable_weights, self.gathered)):  # noqa: B905
            gradients.append((self._gradient(number, gathered, done, share), weight))
        size = tf.shape(next(leaf for leaf in tf.nest.flatten(x) if leaf is not None))[0]

        pairs = list(zip(self.changing, before))  # noqa: B905

        def write():
            if gradients:
                update(tf, model.optimizer, gradients, state)
            self._track_outputs(y, y_pred, sample_weight, pairs)
            model._loss_tracker.update_state(loss, **({"sample_weight": size} if self.tracks_size else {}))
            return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

        logs, state = settle(tf, model, gradients, loss, (x, y, sample_weight), write, pairs, state)
        with tf.control_dependencies([state]):
            for gathered in self.gathered:
                gathered.assign(tf.zeros_like(gathered))
        return logs, state


def _among(variable, variables):
    return any(variable is other for other in variables)


def _weighing(model):
    """What a loss over a batch is divided by: its samples, their weights, or nothing."""
    flat = getattr(getattr(model, "_compile_loss", None), "_flat_losses", None) or []
    kinds = {getattr(one.loss, "reduction", None) for one in flat}
    if kinds == {"sum"}:
        return "sum"
    return "weights" if kinds == {"mean_with_sample_weight"} else "samples"
