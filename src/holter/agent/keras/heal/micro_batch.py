"""A train function of ours for one Keras model on TensorFlow: in force only after an act, never in calm.

The batch is drawn before the step. It is run in micro-batches, each by the model's own `train_step` while its optimizer
notes the gradients in place of an update; their sum is judged and applied once. With one micro-batch it is only the
guard against updates that are not finite. Whatever goes wrong in here, the same batch is handed to the plain function.
"""

from contextlib import contextmanager
from typing import Any

from ...heal.leaves import Unsplittable
from .proof import prove

_CALLS = ("apply_gradients", "apply")


class MicroBatches:
    """Stands in for `model.train_function`: takes an iterator over batches, gives the logs of its last step."""

    def __init__(self, healer, hold, model, parts):
        self.healer, self.hold, self.tf, self.model, self.parts = healer, hold, healer.tf, model, parts
        self.inner = model.train_function
        self.at_once = int(model.steps_per_execution or 1)
        self.rows = 0  # samples of a micro-batch
        self.part: "Any" = None
        self.proof = None
        self.guards = not scales_loss(model.optimizer)
        self.closing: "Any" = None
        self.is_marked = self.is_left = False

    # --- as Keras calls it --------------------------------------------------------------------------------

    def __call__(self, iterator):
        logs = None
        for number in range(self.at_once):
            try:
                data = next(iterator)
            except (StopIteration, self.tf.errors.OutOfRangeError):
                if not number:
                    raise
                break
            logs = self.inner(iter((data,))) if self.is_left else self._step(without_optionals(self.tf, data))
        return logs

    def _step(self, data):
        before = []
        try:
            batch = Batch(self.tf, data)
            if self.part is None or not self.part.takes(batch):
                self._make(batch)
            before = self.values()
            return self._run(batch, before)
        except Exception as error:
            failed = error
        failed.__traceback__ = failed.__context__ = None  # its frames hold the tensors of what failed
        put_back(before)
        self.leave(failed)
        return self.inner(iter((data,)))

    def leave(self, error):
        """The plain function is the model's again, and told why."""
        self.is_left = True
        if self.model.train_function is self:
            self.model.train_function = self.inner
        self.hold.left(self, self.healer.words_for(error))

    def _make(self, batch):
        """Trace the step for micro-batches of any size; prove first that there may be several."""
        part = Part(self.tf, self.model, self.healer.keras, batch, before=self.part)
        if self.parts > 1:
            self.rows = self.rows or max(1, -(-batch.size // self.parts))
            self.proof = prove(self.tf, self.model, part, batch, self.healer.is_oom)
        self.guards = self.guards and self.healer.loop.cpu_only  # a device would have to be waited for
        self.part, self.closing = part, untold(self.tf, self._close)

    def values(self):
        """What a step writes beside the weights, and what it is now."""
        return [(variable, self.tf.identity(variable)) for variable in self.part.written]

    # --- one batch ----------------------------------------------------------------------------------------

    def _run(self, batch, before):
        if self.is_marked:
            self._unmark()
        done = self._all_parts(batch)
        total = sum(weight for weight, _ in done)
        scale = 1.0 if self.proof is None or self.proof.share == "sum" else batch.size / total
        good = self.closing(self.part.summed([out for _, out in done]), self.tf.constant(scale, self.tf.float32))
        if not self.guards or bool(good):
            self.hold.ran(self, batch.size)
            return self.proof.logs(done, total) if self.proof is not None else done[-1][1]["logs"]
        put_back(before)
        if self.hold.held_back(batch.data):
            return self._mark()
        return self.model.get_metrics_result()

    def _all_parts(self, batch):
        """Micro-batches that do not fit are made smaller; those that did are not run again."""
        done, begin, rows = [], 0, self.rows or batch.size
        while begin < batch.size:
            end = min(batch.size, begin + rows)
            before = self.values() if self.proof is not None else []
            cut = batch.cut(begin, end)
            try:
                out = self.part(cut)
            except Exception as error:
                if self.proof is None or not self.healer.is_oom(error):
                    raise
                failed = error
            else:
                weight = self.proof.weight(cut, out) if self.proof is not None else 1.0
                if self.proof is not None and self.proof.share != "sum":
                    self.part.scale(out, weight / batch.size)
                done.append((weight, out))
                begin = end
                continue
            failed.__traceback__ = failed.__context__ = None
            if end - begin == 1:
                raise Unsplittable("a single sample does not fit")
            put_back(before)
            self.rows = rows = -(-(end - begin) // 2)
        return done

    def _close(self, gradients, scale):
        """The one update, where all of it is finite."""
        tf, part = self.tf, self.part
        if self.proof is not None and self.proof.share != "samples":
            gradients = {place: scaled(tf, gradient, scale) for place, gradient in gradients.items()}
        pairs = [(gradients.get(str(n)), variable) for n, variable in enumerate(part.variables)]

        def update():
            part.optimizer.apply_gradients(pairs)
            return tf.constant(True)

        if not self.guards:
            return update()
        if not part.optimizer.built:
            part.optimizer.build(part.variables)
        return tf.cond(finite(tf, gradients.values()), update, lambda: tf.constant(False))

    # --- a mean over no batch ------------------------------------------------------------------------------

    def _mark(self):
        """Where only left out batches have been counted there is no mean: NaN, and not 0, which would be the best."""
        tracker = self.model._loss_tracker
        if hasattr(tracker, "count") and not float(tracker.count.numpy()):
            tracker.total.assign(float("nan"))
            tracker.count.assign(1.0)
            self.is_marked = True
        return self.model.get_metrics_result()

    def _unmark(self):
        self.is_marked, tracker = False, self.model._loss_tracker
        if float(tracker.total.numpy()) != float(tracker.total.numpy()):  # Keras may have begun anew meanwhile
            tracker.reset_state()


class Part:
    """The model's own step for some samples, traced once: its gradients are noted, and no update is made."""

    def __init__(self, tf, model, keras, batch, quietly=(), before=None):
        self.tf, self.model, self.keras, self.batch, self.before = tf, model, keras, batch, before
        self.optimizer, self.variables = None, []
        step = type(model).train_step
        self.step = getattr(step, "python_function", step)  # what the user has compiled is compiled with all
        kind = keras.optimizers.Optimizer
        self.optimizers = list({id(one): one for one in vars(model).values() if isinstance(one, kind)}.values())
        self.quietly = quietly
        self.specs = [tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype) for leaf in batch.leaves]
        if before is not None and before.batch.is_like(batch):  # but for lengths, which may be any from here on
            self.specs = [one.most_specific_common_supertype([two]) for one, two in zip(self.specs, before.specs)]  # noqa: B905
        self.function = untold(tf, self._body, input_signature=(self.specs,), jit_compile=bool(model.jit_compile))
        self.captured = list(self.function.get_concrete_function().graph.variables)
        own = [*model.trainable_variables, *(v for one in self.optimizers for v in one.variables)]
        own = {id(getattr(variable, "_value", variable)) for variable in own}
        self.written = [variable for variable in self.captured if id(variable) not in own]

    def takes(self, batch):
        """Whether it was traced for such batches."""
        return self.batch.is_like(batch) and all(
            spec.is_compatible_with(leaf)
            for spec, leaf in zip(self.specs, batch.leaves)  # noqa: B905
        )

    def __call__(self, leaves):
        return dict(self.function(leaves))

    def _body(self, leaves):
        tf, noted, seen = self.tf, [], []
        with catching(self.optimizers, noted), inference(self.quietly), masks(self.model, seen):
            logs = self.step(self.model, self.batch.packed(leaves))
        if len(noted) != 1:
            raise Unsplittable("its step makes %d updates" % len(noted) if noted else "its step makes no update")
        self.optimizer, pairs = noted[0]
        self.variables = [variable for _, variable in pairs]
        known = {str(n): gradient for n, (gradient, _) in enumerate(pairs) if gradient is not None}
        if not known:
            raise Unsplittable("its step has no gradients")
        out = {"logs": logs, "gradients": known}
        if len(seen) == 1 and seen[0] is not None:
            out["mask"] = tf.reduce_sum(tf.cast(seen[0], tf.float32))
        return out

    def scale(self, out, by):
        out["gradients"] = {n: scaled(self.tf, gradient, by) for n, gradient in out["gradients"].items()}

    def summed(self, outs):
        """The gradients of all micro-batches together; rows of an embedding stay rows, as optimizers treat them."""
        tf, first = self.tf, outs[0]["gradients"]
        if len(outs) == 1:
            return first
        found = {}
        for place, gradient in first.items():
            same = [out["gradients"][place] for out in outs]
            if isinstance(gradient, tf.IndexedSlices):
                values, indices = (tf.concat([getattr(one, at) for one in same], 0) for at in ("values", "indices"))
                found[place] = tf.IndexedSlices(values, indices, gradient.dense_shape)
            else:
                found[place] = tf.add_n(same)
        return found


class Batch:
    """The tensors of one batch, which are cut along their first axis."""

    def __init__(self, tf, data):
        self.tf, self.data = tf, data
        flat = tf.nest.flatten(data)
        if any(isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor)) for leaf in flat):
            raise Unsplittable("a sparse or ragged batch can't be cut")
        self.places = [n for n, leaf in enumerate(flat) if leaf is not None]
        self.leaves = [tf.convert_to_tensor(flat[n]) for n in self.places]
        sizes = {leaf.shape[0] if leaf.shape.rank else None for leaf in self.leaves}
        if len(sizes) != 1 or None in sizes:
            raise Unsplittable("its inputs and targets do not all have one entry for each sample")
        self.size = sizes.pop()

    def is_like(self, other):
        """Whether the other has the same tensors but for their sizes."""
        tf, one, two = self.tf, self.leaves, other.leaves
        try:
            tf.nest.assert_same_structure(self.data, other.data)
        except (TypeError, ValueError):
            return False
        return self.places == other.places and all(
            a.dtype == b.dtype and a.shape.rank == b.shape.rank
            for a, b in zip(one, two)  # noqa: B905
        )

    def cut(self, begin, end):
        whole = begin == 0 and end == self.size
        return self.leaves if whole else [leaf[begin:end] for leaf in self.leaves]

    def packed(self, leaves):
        """A batch of the same structure, with these tensors."""
        flat = [None] * len(self.tf.nest.flatten(self.data))
        for place, leaf in zip(self.places, leaves):  # noqa: B905
            flat[place] = leaf
        return self.tf.nest.pack_sequence_as(self.data, flat)

    def sample_weights(self, leaves):
        """The third of x, y and sample_weight, where it is one tensor."""
        data = self.packed(leaves)
        found = data[2] if isinstance(data, tuple) and len(data) == 3 else None
        return found if self.tf.is_tensor(found) else None


# --- while a step is traced ------------------------------------------------------------------------------------


@contextmanager
def catching(optimizers, noted):
    """Note what optimizers are called with, in place of the update."""

    def note(optimizer):
        def apply_gradients(grads_and_vars, *_args, **_kwargs):
            noted.append((optimizer, list(grads_and_vars)))

        def apply(grads, trainable_variables=None, *_args, **_kwargs):
            variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
            noted.append((optimizer, list(zip(grads, variables))))  # noqa: B905

        return {"apply_gradients": apply_gradients, "apply": apply}

    with _put([(optimizer, note(optimizer)) for optimizer in optimizers]):
        yield


@contextmanager
def inference(layers):
    """Have layers that draw numbers or compare samples by design do as in inference."""

    def still(layer):
        call = layer.call
        return {"call": lambda *args, **kwargs: call(*args, **{**kwargs, "training": False})}

    with _put([(layer, still(layer)) for layer in layers]):
        yield


@contextmanager
def masks(model, seen):
    """Note the mask of each output that a loss is computed of."""
    inner: "Any" = getattr(model, "_compute_loss", None)

    def compute(*args, **kwargs):
        y_pred = kwargs["y_pred"] if "y_pred" in kwargs else args[2] if len(args) > 2 else None
        seen.append(getattr(y_pred, "_keras_mask", None))
        return inner(*args, **kwargs)

    with _put([(model, {"_compute_loss": compute})] if inner is not None else []):
        yield


@contextmanager
def _put(named):
    # Not through `setattr`: Keras and TensorFlow would take it for a part of the model.
    before = [{name: vars(thing)[name] for name in ours if name in vars(thing)} for thing, ours in named]
    for thing, ours in named:
        vars(thing).update(ours)
    try:
        yield
    finally:
        for (thing, ours), own in zip(named, before):  # noqa: B905
            for name in ours:
                vars(thing).pop(name, None)
            vars(thing).update(own)  # what the script has put on this very object


# --- values ----------------------------------------------------------------------------------------------------


def without_optionals(tf, data):
    """A batch; newer versions of Keras hand on a missing part of it as an empty optional."""
    if any(isinstance(leaf, tf.experimental.Optional) for leaf in tf.nest.flatten(data)):
        return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, data)
    return data


def put_back(values):
    for variable, value in values:
        variable.assign(value)


def scaled(tf, gradient, by):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * tf.cast(by, gradient.dtype), gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(by, gradient.dtype)


def finite(tf, tensors):
    """Whether all numbers of these tensors are finite: a sum is not when one of them is not."""
    sums = []
    for tensor in tensors:
        values = getattr(tensor, "values", tensor)  # of a gradient with only some rows
        if values.dtype.is_floating:
            sums.append(tf.reduce_sum(tf.cast(values, tf.float32) if values.dtype.size < 4 else values))
    return tf.math.is_finite(tf.add_n([tf.cast(one, tf.float32) for one in sums])) if sums else tf.constant(True)


def scales_loss(optimizer):
    """True for an optimizer that skips steps with infinite gradients by itself, and has to see them for that."""
    return any(cls.__name__ == "LossScaleOptimizer" for cls in type(optimizer).__mro__)


def untold(tf, body, **how):
    """A function of ours, of which TensorFlow tells the user nothing: few samples and many are traced each for once."""
    made = tf.function(tf.autograph.experimental.do_not_convert(body), reduce_retracing=True, **how)
    made._omit_frequent_tracing_warning = True
    return made
