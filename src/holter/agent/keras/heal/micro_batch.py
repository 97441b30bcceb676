"""A train function of ours for one Keras model on TensorFlow: in force only after an act, never in calm.

The batch is drawn before the step. It is run in micro-batches, each by the model's own `train_step` while its optimizer
notes the gradients in place of an update; their sum is judged and applied once. With one micro-batch it only skips
updates that are non-finite. Whatever goes wrong in here, the same batch is handed to the plain function.
"""

from contextlib import contextmanager
from typing import Any

from ...heal.leaves import Unsplittable
from .proof import prove, put_back

# Its step begins without a batch, and the count is what is written before that is noticed.
_UNCOUNTED = "Keras counts one update more at each end of data of unknown length, and chunks do not"


class MicroBatches:
    """Stands in for `model.train_function`: takes an iterator over batches, gives the logs of its last step."""

    def __init__(self, healer, updates, model, chunks):
        self.healer, self.updates, self.tf, self.model, self.chunks = healer, updates, healer.tf, model, chunks
        self.plain = model.train_function
        self.at_once = int(model.steps_per_execution or 1)
        self.chunk_size = 0  # samples; 0 for the full batch
        self.reported_size = 0
        self.step: "Any" = None  # GradientStep
        self.proof = None
        self.skips_nonfinite = not scales_loss(model.optimizer)
        self.apply_update: "Any" = None
        self.has_no_mean = self.is_off = False

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
            logs = self.plain(iter((data,))) if self.is_off else self._step(without_optionals(self.tf, data))
        return logs

    def _step(self, data):
        before = []
        try:
            batch = Batch(self.tf, data)
            if self.step is None or not self.step.takes(batch):
                self._prepare(batch)
            before = self.written_now()
            return self._run(batch, before)
        except Exception as error:
            failed = error
        failed.__traceback__ = failed.__context__ = None  # its frames hold the tensors of what failed
        put_back(before)
        self._switch_off(failed)
        return self.plain(iter((data,)))

    def _switch_off(self, error):
        """The plain function is the model's again, and the reason is reported."""
        self.is_off = True
        if self.model.train_function is self:
            self.model.train_function = self.plain
        because = self.updates.why_not_replaced = self.healer.reason_of(error)
        self._report("declined", act="split-batch" if self.chunks > 1 else "hold-update", because=because)

    def stop_skipping(self):
        """Make updates as they come; a batch that is not split either is the plain function's again."""
        self.skips_nonfinite = False
        self.apply_update = own_function(self.tf, self._apply_update)  # the traced one would skip them still
        if self.chunks == 1:
            self.model.train_function = self.plain

    def _prepare(self, batch):
        """Trace the step for micro-batches of any size; prove first that there may be several."""
        step = GradientStep(self.tf, self.model, self.healer.keras, batch, before=self.step)
        if self.chunks > 1:
            self.chunk_size = self.chunk_size or max(1, -(-batch.size // self.chunks))
            self.proof = prove(self.tf, self.model, step, batch, self.healer.is_oom)
        # On a device the answer would have to be waited for.
        self.skips_nonfinite = self.skips_nonfinite and self.healer.loop.cpu_only
        self.step, self.apply_update = step, own_function(self.tf, self._apply_update)

    def written_now(self):
        """What a step writes beside the weights, and what it is now."""
        return [(variable, self.tf.identity(variable)) for variable in self.step.written]

    # --- one batch ----------------------------------------------------------------------------------------

    def _run(self, batch, before):
        if self.has_no_mean:
            self._count_again()
        done = self._run_chunks(batch)
        total = sum(weight for weight, _ in done)
        scale = 1.0 if self.proof is None or self.proof.share == "sum" else batch.size / total
        gradients = self.step.summed([out for _, out in done])
        is_made = self.apply_update(gradients, self.tf.constant(scale, self.tf.float32))
        if not self.skips_nonfinite or bool(is_made):
            self.updates.in_a_row = 0
            if self.proof is None:
                return done[-1][1]["logs"]
            self._report_split(batch.size)
            return self.proof.logs(done, total)
        put_back(before)
        if self.updates.skipped(batch.data):
            return self.without_mean()
        return self.model.get_metrics_result()

    def _run_chunks(self, batch):
        """Micro-batches that do not fit are made smaller; those that did are not run again."""
        done, begin, size = [], 0, self.chunk_size or batch.size
        while begin < batch.size:
            end = min(batch.size, begin + size)
            before = self.written_now() if self.proof is not None else []
            chunk = batch.chunk(begin, end)
            try:
                out = self.step(chunk)
            except Exception as error:
                if self.proof is None or not self.healer.is_oom(error):
                    raise
                failed = error
            else:
                weight = self.proof.weight(chunk, out) if self.proof is not None else 1.0
                if self.proof is not None and self.proof.share != "sum":
                    self.step.scale(out, weight / batch.size)
                done.append((weight, out))
                begin = end
                continue
            failed.__traceback__ = failed.__context__ = None
            if end - begin == 1:
                raise Unsplittable("a single sample does not fit")
            put_back(before)
            self.chunk_size = size = -(-(end - begin) // 2)
        return done

    def _apply_update(self, gradients, scale):
        """The one update, where all of it is finite."""
        tf, step = self.tf, self.step
        if self.proof is not None and self.proof.share != "samples":
            gradients = {place: scaled(tf, gradient, scale) for place, gradient in gradients.items()}
        pairs = [(gradients.get(str(n)), variable) for n, variable in enumerate(step.variables)]

        def update():
            step.optimizer.apply_gradients(pairs)
            return tf.constant(True)

        if not self.skips_nonfinite:
            return update()
        if not step.optimizer.built:
            step.optimizer.build(step.variables)
        return tf.cond(finite(tf, gradients.values()), update, lambda: tf.constant(False))

    # --- reports ------------------------------------------------------------------------------------------

    def _report_split(self, size):
        """Say once for each size of chunks in how many of them a batch was run, with one update."""
        chunks = -(-size // self.chunk_size)
        if chunks < 2 or self.reported_size == self.chunk_size:
            return
        self.reported_size = self.chunk_size
        keeps, because = self.proof.keeps, self.proof.because
        if keeps == "exact" and not self.updates.is_counted:
            keeps, because = "equivalent", _UNCOUNTED
        text = "the batch of %d would not fit: it is run in %d chunks of up to %d" % (size, chunks, self.chunk_size)
        self._report(
            "intervention", act="split-batch", keeps=keeps, batch=size, rows=self.chunk_size, because=because, text=text
        )

    def _report(self, kind, /, **fields):
        agent = self.healer.agent
        agent.say(kind, step=agent.beat.steps + 1, model=type(self.model).__name__, **fields)

    # --- a mean over no batch ------------------------------------------------------------------------------

    def without_mean(self):
        """Where only skipped batches have been counted there is no mean: NaN, and not 0, which would be the best."""
        tracker = self.model._loss_tracker
        if hasattr(tracker, "count") and not float(tracker.count.numpy()):
            tracker.total.assign(float("nan"))
            tracker.count.assign(1.0)
            self.has_no_mean = True
        return self.model.get_metrics_result()

    def _count_again(self):
        self.has_no_mean, tracker = False, self.model._loss_tracker
        if float(tracker.total.numpy()) != float(tracker.total.numpy()):  # Keras may have begun anew meanwhile
            tracker.reset_state()


class GradientStep:
    """The model's own step for some samples, traced once: its gradients are noted, and no update is made."""

    def __init__(self, tf, model, keras, batch, as_in_inference=(), before=None):
        self.tf, self.model, self.keras, self.batch, self.before = tf, model, keras, batch, before
        self.optimizer, self.variables = None, []
        step = type(model).train_step
        self.train_step = getattr(step, "python_function", step)  # what the user has compiled is compiled with all
        kind = keras.optimizers.Optimizer
        self.optimizers = list({id(one): one for one in vars(model).values() if isinstance(one, kind)}.values())
        self.as_in_inference = as_in_inference
        self.specs = [tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype) for leaf in batch.leaves]
        if before is not None and before.batch.is_like(batch):  # but for lengths, which may be any from here on
            self.specs = [one.most_specific_common_supertype([two]) for one, two in zip(self.specs, before.specs)]  # noqa: B905
        self.function = own_function(tf, self._body, input_signature=(self.specs,), jit_compile=bool(model.jit_compile))
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
        tf, noted, masks = self.tf, [], []
        with noting(self.optimizers, noted), in_inference(self.as_in_inference), noting_masks(self.model, masks):
            logs = self.train_step(self.model, self.batch.packed(leaves))
        if len(noted) != 1:
            raise Unsplittable("its step makes %d updates" % len(noted) if noted else "its step makes no update")
        self.optimizer, pairs = noted[0]
        self.variables = [variable for _, variable in pairs]
        known = {str(n): gradient for n, (gradient, _) in enumerate(pairs) if gradient is not None}
        if not known:
            raise Unsplittable("its step has no gradients")
        out = {"logs": logs, "gradients": known}
        if len(masks) == 1 and masks[0] is not None:
            out["mask"] = tf.reduce_sum(tf.cast(masks[0], tf.float32))
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
    """The tensors of one batch, which is cut into chunks along their first axis."""

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

    def chunk(self, begin, end):
        is_all = begin == 0 and end == self.size
        return self.leaves if is_all else [leaf[begin:end] for leaf in self.leaves]

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
def noting(optimizers, noted):
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
def in_inference(layers):
    """Have layers that draw numbers or compare samples by design do as in inference."""

    def still(layer):
        call = layer.call
        return {"call": lambda *args, **kwargs: call(*args, **{**kwargs, "training": False})}

    with _put([(layer, still(layer)) for layer in layers]):
        yield


@contextmanager
def noting_masks(model, seen):
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
    # Not through `setattr`: Keras and TensorFlow would track it with the model.
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
    """A batch; newer versions of Keras hand on missing targets or weights as an empty optional."""
    if any(isinstance(leaf, tf.experimental.Optional) for leaf in tf.nest.flatten(data)):
        return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, data)
    return data


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


def own_function(tf, body, **how):
    """A `tf.function` of ours, of whose retracing TensorFlow warns nobody: few samples and many are traced each."""
    made = tf.function(tf.autograph.experimental.do_not_convert(body), reduce_retracing=True, **how)
    made._omit_frequent_tracing_warning = True
    return made
