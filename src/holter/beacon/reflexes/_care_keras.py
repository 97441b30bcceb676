"""What is known of one Keras model under care, and its train function: the whole batch in one, or in parts."""

from ._leaves import Unsplittable
from ._parts_keras import Parts
from ._pieces_keras import Pieces, plain
from ._step_keras import NEW, Stand, changing, settle, update
from ._tryout_keras import TryOut
from .nan_keras import Hold


class Care:
    """Stands in for `model.train_function`: takes an iterator over batches, gives the logs of its last step."""

    def __init__(self, split, model, inner):
        self.split, self.tf, self.model, self.inner = split, split.tf, model, inner
        self.name = type(model).__name__
        self.at_once = int(model.steps_per_execution or 1)
        self.why_not = split.why_not(model)
        self.rows = 0  # samples of a part, once there are parts
        self.tried = 0  # executions of several steps at once that were run one by one
        self.parts = None
        self.state = None
        self.hold = Hold(self)
        self.tryout = TryOut(self)
        self.whole = self.spec = None
        self.proven = False  # a step has gone through
        self.state_in = self.next_state = None
        self.asked = split.asked

    def __call__(self, iterator):
        if self.why_not is not None:
            return self._as_it_is(iterator, self.why_not)
        if self.at_once > 1 and not self.rows and not self.asked and self.tried:
            return self._as_it_is(iterator, "%d steps are run at once, and their batches are gone" % self.at_once)
        self.tried = 1
        logs = None
        for number in range(self.at_once):
            try:
                data = iterator.get_next() if hasattr(iterator, "get_next") else next(iterator)
            except (StopIteration, self.tf.errors.OutOfRangeError):
                if not number:
                    raise
                break
            if self.whole is None or getattr(iterator, "element_spec", None) != self.spec:
                self._make(getattr(iterator, "element_spec", None))
            logs = self.step(plain(self.tf, data))
        return logs

    def _as_it_is(self, iterator, why):
        if self.asked:
            self.split.tell_declined(self.name, why)
        try:
            return self.inner(iterator)
        except Exception as error:
            if self.split.is_oom(error):
                self.split.tell_declined(self.name, why)
            raise

    # --- one step -----------------------------------------------------------------------------------------

    def step(self, data):
        """One batch: whole while it fits."""
        if not self.hold.begun:
            self.hold.begin()
        if self.asked and not self.rows:
            return self._first_asked(data)
        if not self.rows and self.tryout.wants(data):
            self._look_ahead(data)
        if self.rows:
            logs = self._in_parts(data, None)
            if logs is not None:
                return logs
        try:
            logs, state = self.whole(data, self.state)
        except Exception as error:
            if not self.split.is_oom(error):
                if self.proven:
                    raise
                return self._without_us(data, error)
            failed = error
        else:
            self.state, self.proven = state, True
            return self.hold.saw(logs, data)
        # The frames of the failed attempt hold its tensors: they go with the traceback.
        failed.__traceback__ = failed.__context__ = None
        return self._in_parts(data, failed)

    def _make(self, spec):
        """The step as one function; in `fit` it is traced once for batches of all sizes, as Keras' own is."""
        tf, model = self.tf, self.model
        self.spec = spec
        if self.state is None:
            self.state = tf.constant(NEW, tf.float32)

        @tf.autograph.experimental.do_not_convert
        def one_step(data, state):
            self.state_in, self.split.open = state, self
            try:
                return model.train_step(data), self.next_state
            finally:
                self.split.open = self.state_in = self.next_state = None

        how = {"reduce_retracing": True}
        if spec is not None and all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec)):
            how = {"input_signature": (spec, tf.TensorSpec((len(NEW),), tf.float32))}
        self.whole = self.function(one_step, **how)

    def _without_us(self, data, error):
        """The first step has failed: by the user's own error, or by ours."""
        logs = self.inner(iter((data,)))
        self.split.guest.guard.caught("train_step", error)
        self.why_not = "the step can't be taken apart (%s)" % type(error).__name__
        return logs

    def set_state(self, held, guarding, factor):
        """Hand on another state to the next step."""
        self.state = self.tf.constant((held, 0.0, guarding, factor), self.tf.float32)

    def function(self, body, **how):
        """Compile as the user has asked Keras to."""
        if self.model.run_eagerly:
            return body
        return self.tf.function(body, jit_compile=bool(self.model.jit_compile), **how)

    def train_step(self, data):
        """Keras' own step, with what it writes held until it is known to be good."""
        tf, model = self.tf, self.model
        before = [(variable, tf.identity(variable.value)) for variable in changing(model)]
        stand, state = Stand(model), self.state_in
        self.split.train_step(stand, data)
        known = {id(variable) for variable, _ in before}
        # Keras makes some of its trackers only when it first needs them.
        new = [variable for variable in changing(model) if id(variable) not in known]
        before += [(variable, tf.zeros_like(variable.value)) for variable in new]

        def write():
            if stand.gradients:
                update(tf, model.optimizer, stand.gradients, state)
            args, kwargs = stand.noted
            model._loss_tracker.update_state(*args, **kwargs)
            args, kwargs = stand.measured
            return model.compute_metrics(*args, **kwargs)

        logs, self.next_state = settle(tf, model, stand.gradients, stand.loss, write, before, state)
        return logs

    # --- in parts -----------------------------------------------------------------------------------------

    def _first_asked(self, data):
        try:
            pieces = Pieces(self.tf, self.split.keras.utils.unpack_x_y_sample_weight(data))
            self.rows = max(1, -(-pieces.size // self.asked))
        except Unsplittable as error:
            self._decline(str(error))
            return self.step(data)
        logs = self._in_parts(data, None)
        return self.step(data) if logs is None else logs

    def _look_ahead(self, data):
        try:
            self.rows = self.tryout.rows_for(Pieces(self.tf, self.split.keras.utils.unpack_x_y_sample_weight(data)))
        except Exception as error:
            self.tryout.off = True
            if not isinstance(error, Unsplittable):
                self.split.guest.guard.caught("try-out", error)

    def _in_parts(self, data, failed):
        """The same batch in parts; None where it is small enough or can't be cut, and has not failed yet."""
        try:
            pieces = Pieces(self.tf, self.split.keras.utils.unpack_x_y_sample_weight(data))
            if failed is not None:
                self.rows = max(1, -(-min(pieces.size, self.rows or pieces.size) // 2))
            if pieces.size <= self.rows:
                if failed is not None:
                    raise Unsplittable("a single sample does not fit")
                return None
            if self.parts is None:
                self.parts = Parts(self, pieces)
            logs, self.state = self.parts.run(pieces, self.state)
        except Exception as error:
            why = str(error)
            if self.split.is_oom(error):
                why = "a single sample does not fit"
            elif not isinstance(error, Unsplittable):
                self.split.guest.guard.caught("in parts", error)
                self.parts, why = None, "a part failed (%s)" % type(error).__name__
            self._decline(why)
            if failed is not None:
                raise failed from None
            return None
        words = "did not fit" if failed is not None else self.tryout.words or "would not fit"
        self.split.tell_split(self, pieces.size, words)
        return self.hold.saw(logs, data)

    def _decline(self, why):
        self.rows, self.asked = 0, 0
        self.split.tell_declined(self.name, why)

    def keeps(self):
        """What a split keeps of this model's result, and why not all."""
        model = self.model
        layers = [layer for layer in model._flatten_layers() if layer.trainable]
        if any("BatchNormalization" in type(layer).__name__ for layer in layers):
            return "equivalent", "BatchNormalization takes its statistics from each part"
        if any(_is_random(layer) for layer in layers):
            return "equivalent", "random layers such as Dropout draw anew for each part"
        return "exact", ""


def _is_random(layer):
    """Whether a layer draws random numbers; a recurrent one only where it has a dropout."""
    if not getattr(layer, "_seed_generators", None):
        return False
    if hasattr(layer, "recurrent_dropout"):
        return bool(layer.dropout or layer.recurrent_dropout)
    return bool(getattr(layer, "rate", 1.0))
