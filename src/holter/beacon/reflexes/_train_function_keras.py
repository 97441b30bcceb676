"""A Keras model's train function under care: the whole batch in one while it fits, in parts where it does not.

What a whole step and its parts are is the affair of those who take it over: `_care_keras` for Keras' own `train_step`,
`_own_step_keras` for a user's.

The batch is drawn before the step, to be there still when it fails. That costs a tenth of a millisecond, since Keras
draws it within the compiled step. On a CPU no failure can be caught, so that once it is clear that batches of this kind
fit easily they are drawn there again.
"""

from ._leaves import Unsplittable
from ._pieces_keras import Pieces, plain
from ._step_keras import NEW, put_back, untold
from .nan_keras import Hold

_SETTLED = 8  # whole steps


class TrainFunction:
    """Stands in for `model.train_function`: takes an iterator over batches, gives the logs of its last step."""

    def __init__(self, split, model, inner):
        self.split, self.tf, self.model, self.inner = split, split.tf, model, inner
        self.name = type(model).__name__
        self.at_once = int(model.steps_per_execution or 1)
        self.why_not = split.why_not(model)
        self.asked = split.asked
        self.rows = self.told = 0  # samples of a part, once there are parts, and the last that was told of
        self.tried = True  # an execution of several steps at once is not run one by one
        self.went = 0  # steps that have gone through whole
        self.whole = self.spec = self.state = self.parts = None
        self.drawing = None  # the step with the drawing of its batch
        self.hold = Hold(self)

    # --- to be taken over ---------------------------------------------------------------------------------

    def one_step(self, data, state):
        """The whole step, in a graph: its logs, and the state that it hands on."""
        raise NotImplementedError

    def make_parts(self, pieces):
        """What runs a batch in parts."""
        raise NotImplementedError

    def keeps(self):
        """What a split keeps of this model's result, and why not all."""
        raise NotImplementedError

    def look_ahead(self, data):
        """Before a batch is run whole: will it fit?"""

    def fits_easily(self):
        """Whether batches like those before need not be looked at any more."""
        return True

    def values(self):
        """Before a batch is run whole: what has to be put back where it fails."""
        return []

    def pieces(self, data):
        return Pieces(self.tf, data)

    @property
    def words(self):
        """Of a batch that was cut before it failed."""
        return "would not fit"

    # --- as Keras calls it --------------------------------------------------------------------------------

    def __call__(self, iterator):
        why = self.why_not
        if why is None and self.at_once > 1 and self.tried and not self.rows and not self.asked:
            why = "%d steps are run at once, and their batches are gone" % self.at_once
        if why is not None:
            return self._as_it_is(iterator, why)
        self.tried = True
        if self.drawing is not None and getattr(iterator, "element_spec", None) == self.spec:
            (logs, self.state), data = self.drawing(iterator, self.state)
            return self.hold.saw(logs, data)
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
        if self.went == _SETTLED:
            self._settle(iterator)
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

    def _make(self, spec):
        """The step as one function; in `fit` it is traced once for batches of all sizes, as Keras' own is."""
        tf = self.tf
        self.spec, self.went, how = spec, 0, {"reduce_retracing": True}
        if spec is not None and all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec)):
            how = {"input_signature": (spec, tf.TensorSpec((len(NEW),), tf.float32))}
        if self.state is None:
            self.state = tf.constant(NEW, tf.float32)
        self.whole, self.drawing = self.function(lambda data, state: self.one_step(data, state), **how), None

    def _settle(self, iterator):
        """Draw within the step from here on, where nothing can come that would have to be looked at first."""
        if self.rows or self.at_once > 1 or self.model.run_eagerly or not self.split.loop.cpu_only:
            return
        if not _is_of_one_kind(self.tf, self.spec) or not self.fits_easily():
            return

        @self.tf.autograph.experimental.do_not_convert
        def drawing(iterator, state):
            data = plain(self.tf, iterator.get_next())
            return self.whole(data, state), data

        try:
            drawing = self.tf.function(drawing)
            drawing.get_concrete_function(iterator, self.state)
        except Exception as error:
            self.split.guest.guard.caught("drawing", error)
        else:
            self.drawing = drawing

    def function(self, body, **how):
        """Compile as the user has asked Keras to."""
        if self.model.run_eagerly:
            return body
        return untold(self.tf, body, jit_compile=bool(self.model.jit_compile), **how)

    def set_state(self, held, guarding, factor):
        """Hand on another state to the next step."""
        self.state = self.tf.constant((held, 0.0, guarding, factor, 0.0), self.tf.float32)

    # --- one batch ----------------------------------------------------------------------------------------

    def step(self, data):
        """One batch: whole while it fits."""
        if not self.hold.begun:
            self.hold.begin()
        if self.asked and not self.rows:
            self._ask(data)
        if not self.rows:
            self.look_ahead(data)
        if self.rows:
            logs = self._in_parts(data, None)
            if logs is not None:
                return logs
        before = self.values()
        try:
            logs, state = self.whole(data, self.state)
        except Exception as error:
            if not self.split.is_oom(error):
                if self.went:
                    raise
                return self._without_us(data, error)
            failed = error
        else:
            self.went, self.state = self.went + 1, state
            return self.hold.saw(logs, data)
        put_back(before)
        # The frames of the failed attempt hold its tensors: they go with the traceback.
        failed.__traceback__ = failed.__context__ = None
        return self._in_parts(data, failed)

    def _without_us(self, data, error):
        """The first step has failed: by the user's own error, or by ours."""
        logs = self.inner(iter((data,)))
        self.split.guest.guard.caught("train_step", error)
        self.why_not = "the step can't be taken apart (%s)" % type(error).__name__
        return logs

    def _ask(self, data):
        """As many parts as were asked for, from the first step on."""
        try:
            self.rows = max(1, -(-self.pieces(data).size // self.asked))
        except Unsplittable as error:
            self.decline(str(error))

    def _in_parts(self, data, failed):
        """The same batch in parts; None where it is small enough or can't be cut, and has not failed yet."""
        try:
            pieces = self.pieces(data)
            if failed is not None:
                self.rows = max(1, -(-min(pieces.size, self.rows or pieces.size) // 2))
            if pieces.size <= self.rows:
                if failed is not None:
                    raise Unsplittable("a single sample does not fit")
                return None
            if self.parts is None:
                self.parts = self.make_parts(pieces)
            logs, self.state = self.parts.run(pieces, self.state)
        except Exception as error:
            why = str(error)
            if self.split.is_oom(error):
                why = "a single sample does not fit"
            elif not isinstance(error, Unsplittable):
                self.split.guest.guard.caught("in parts", error)
                self.parts, why = None, "a part failed (%s)" % type(error).__name__
            self.decline(why)
            if failed is not None:
                raise failed from None
            return None
        self.split.tell_split(self, pieces.size, "did not fit" if failed is not None else self.words)
        return self.hold.saw(logs, data)

    def decline(self, why):
        """No batch of this model is cut from here on."""
        self.rows, self.asked = 0, 0
        self.split.tell_declined(self.name, why)


def _is_of_one_kind(tf, spec):
    """Whether all batches have samples of one shape; a part that is missing is an empty optional."""
    leaves = tf.nest.flatten(spec)
    known = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec) and leaf.shape[1:].is_fully_defined()]
    missing = [leaf for leaf in leaves if isinstance(leaf, tf.OptionalSpec)]
    return bool(known) and len(known) + len(missing) == len(leaves)
