"""A Keras model with a `train_step` of its own: as it is while it fits, in parts where it does not.

Nothing is known of such a step but that it hands its gradients to an optimizer. In parts that call is caught: the
gradients of all parts are gathered, and the optimizer is called once with their mean. Whether that is the gradient of
the whole is seen in those of a few samples, together and in two halves: not where the step compares its samples. Keeps:
exact where these are the same; where random numbers or the statistics of a batch explain the difference, equivalent.
Metrics are told of each part; their mean is that over batches where parts are of one size.
"""

from contextlib import contextmanager

from ._leaves import Unsplittable
from ._pieces_keras import Pieces, plain
from ._step_keras import GUARDING, HELD, NEW, after, changing, finite, scales_loss, update
from .nan_keras import Hold

_FEW = 8  # samples of each half
_PROVEN = 5
_CALLS = ("apply_gradients", "apply")
_SAME = 1e-3
_NOISE = 3.0  # times what two runs of the same samples differ by
_MIXED = 0.5  # with BatchNormalization, whose statistics are those of the half


class OwnStep:
    """Stands in for `model.train_function`: takes an iterator over batches, gives the logs of its last step."""

    def __init__(self, split, model, inner):
        self.split, self.tf, self.model, self.inner = split, split.tf, model, inner
        self.name = type(model).__name__
        self.at_once = int(model.steps_per_execution or 1)
        self.why_not = split.why_not(model)
        self.asked, self.rows = split.asked, 0
        self.whole = self.spec = self.gather = None
        self.went = 0  # steps that have gone through as they are
        step = type(model).train_step
        self.own = getattr(step, "python_function", step)  # what the user has compiled is compiled with all of it
        self.state, self.hold = None, Hold(self)
        kind = split.keras.optimizers.Optimizer
        self.optimizers = list({id(one): one for one in vars(model).values() if isinstance(one, kind)}.values())

    def __call__(self, iterator):
        if self.why_not is not None or (self.at_once > 1 and not self.rows and not self.asked):
            return self._as_it_is(iterator)
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
            logs = self._step(plain(self.tf, data))
        return logs

    def _as_it_is(self, iterator):
        why = self.why_not or "%d steps are run at once, and their batches are gone" % self.at_once
        if self.asked:
            self._decline(why)
        try:
            return self.inner(iterator)
        except Exception as error:
            if self.split.is_oom(error):
                self._decline(why)
            raise

    def _make(self, spec):
        """The step as one function; traced once for batches of all sizes, as Keras' own is."""
        tf, model = self.tf, self.model
        self.spec, how = spec, {"reduce_retracing": True}
        if spec is not None and all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec)):
            how = {"input_signature": (spec, tf.TensorSpec((len(NEW),), tf.float32))}

        if self.state is None:
            self.state = tf.constant(NEW, tf.float32)

        @tf.autograph.experimental.do_not_convert
        def one_step(data, state):
            before, found = values_of(tf, model), []
            with guarding(tf, self.optimizers, state, found):
                logs = self.own(model, data)
            known = {id(variable) for variable, _ in before}
            # Keras makes some of its trackers only when it first needs them.
            new = [variable for variable in changing(model) if id(variable) not in known]
            before += [(variable, tf.zeros_like(variable.value)) for variable in new]
            good = tf.reduce_all(tf.stack(found)) if found else tf.constant(True)
            _where(tf, tf.logical_not(good), lambda: put_back(before))
            return logs, after(tf, state, good)

        self.whole = self.function(one_step, **how)

    def function(self, body, **how):
        """Compile as the user has asked Keras to."""
        if self.model.run_eagerly:
            return body
        return self.tf.function(body, jit_compile=bool(self.model.jit_compile), **how)

    def _step(self, data):
        if not self.hold.begun:
            self.hold.begin()
        if self.asked and not self.rows:
            self._ask(data)
        if self.rows:
            logs = self._in_parts(data, None)
            if logs is not None:
                return logs
        # A step that fails has written what did not depend on what failed; one that has gone through often will not.
        before = values_of(self.tf, self.model) if self.went < _PROVEN else []
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
        try:
            self.rows = max(1, -(-Pieces(self.tf, data).size // self.asked))
        except Unsplittable as error:
            self._decline(str(error))

    def _in_parts(self, data, failed):
        """The same batch in parts; None where it is small enough or can't be cut, and has not failed yet."""
        try:
            pieces = Pieces(self.tf, data)
            if failed is not None:
                self.rows = max(1, -(-min(pieces.size, self.rows or pieces.size) // 2))
            if pieces.size <= self.rows:
                if failed is not None:
                    raise Unsplittable("a single sample does not fit")
                return None
            if self.gather is None:
                self.gather = Gather(self, pieces)
            logs, self.state = self.gather.run(pieces, self.state)
        except Exception as error:
            why = str(error)
            if self.split.is_oom(error):
                why = "a single sample does not fit"
            elif not isinstance(error, Unsplittable):
                self.split.guest.guard.caught("in parts", error)
                self.gather, why = None, "a part failed (%s)" % type(error).__name__
            self._decline(why)
            if failed is not None:
                raise failed from None
            return None
        self.split.tell_split(self, pieces.size, "did not fit" if failed is not None else "would not fit")
        return self.hold.saw(logs, data)

    def set_state(self, held, guarding, factor):
        """Hand on another state to the next step."""
        self.state = self.tf.constant((held, 0.0, guarding, factor), self.tf.float32)

    def _decline(self, why):
        self.rows, self.asked = 0, 0
        if self.why_not is None:
            self.why_not = why
        self.split.tell_declined(self.name, why)

    def keeps(self):
        """What a split keeps of this model's result, and why not all."""
        return ("exact", "") if self.gather.exact else ("equivalent", self.gather.because)


class Gather:
    """Gradients of parts, gathered in variables of their own; made when the first batch does not fit."""

    def __init__(self, own, pieces):
        self.own, self.tf, self.model = own, own.tf, own.model
        self.optimizer = None  # the one that the step calls
        self.variables, self.places = [], {}  # what the step updates; a model may make its weights in its first step
        self.gathered = None
        self.exact, self.because = True, ""
        as_written = self.tf.autograph.experimental.do_not_convert
        self.probe = own.function(as_written(self._probe))
        self._learn(pieces)
        self.gathered = [self.tf.Variable(self.tf.zeros_like(one.value), trainable=False) for one in self.variables]
        self.part, self.close = own.function(as_written(self._part)), own.function(as_written(self._close))

    # --- a part -------------------------------------------------------------------------------------------

    def _caught(self, data):
        """Run the user's step and give its logs and gradients, by the place of their variables."""
        noted = []
        with catching(self.own.optimizers, noted):
            logs = self.own.own(self.model, data)
        if len(noted) != 1:
            words = "its train_step makes %d updates, and parts make one" if noted else "its train_step makes no update"
            raise Unsplittable(words % len(noted) if noted else words)
        self.optimizer, pairs = noted[0]
        found = {}
        for gradient, variable in pairs:
            if gradient is None:
                continue
            if id(variable) not in self.places:
                if self.gathered is not None:
                    raise Unsplittable("its train_step does not always update the same weights")
                self.places[id(variable)] = len(self.variables)
                self.variables.append(variable)
            found[self.places[id(variable)]] = gradient
        return logs, found

    def _probe(self, data):
        _, found = self._caught(data)
        return {str(place): self.tf.convert_to_tensor(gradient) for place, gradient in found.items()}

    def _part(self, data, share):
        tf = self.tf
        logs, found = self._caught(data)
        sparse = {}
        # Not before all of them are there: a part that fails has gathered nothing.
        with tf.control_dependencies([getattr(gradient, "values", gradient) for gradient in found.values()]):
            for place, gradient in found.items():
                scale = tf.cast(share, gradient.dtype)
                if isinstance(gradient, tf.IndexedSlices):  # optimizers treat rows that are not in it otherwise
                    sparse[str(place)] = tf.IndexedSlices(
                        gradient.values * scale, gradient.indices, gradient.dense_shape
                    )
                else:
                    self.gathered[place].assign_add(gradient * scale)
        return logs, sparse

    def _close(self, sparse, state):
        tf, pairs = self.tf, []
        for place, (variable, gathered) in enumerate(zip(self.variables, self.gathered)):  # noqa: B905
            rows = [one[str(place)] for one in sparse if str(place) in one]
            if rows:
                values, indices = (tf.concat([getattr(one, at) for one in rows], 0) for at in ("values", "indices"))
                pairs.append((tf.IndexedSlices(values, indices, rows[0].dense_shape), variable))
            else:
                pairs.append((tf.identity(gathered), variable))
        good = is_good(tf, self.optimizer, pairs, state)
        _where(tf, good, lambda: update(tf, self.optimizer, pairs, state))
        state = after(tf, state, good)
        with tf.control_dependencies([state]):
            for gathered in self.gathered:
                gathered.assign(tf.zeros_like(gathered))
        return state

    # --- a batch ------------------------------------------------------------------------------------------

    def run(self, pieces, state):
        """All parts and the update; parts that do not fit are made smaller, those that did are not run again."""
        own, tf = self.own, self.tf
        before = values_of(tf, self.model)
        done, begin = [], 0
        while begin < pieces.size:
            end = min(pieces.size, begin + own.rows)
            at = values_of(tf, self.model)
            try:
                logs, sparse = self.part(pieces.cut(begin, end), tf.constant((end - begin) / pieces.size, tf.float32))
            except Exception as error:
                if not own.split.is_oom(error):
                    self._undo(before)
                    raise
                if end - begin == 1:
                    self._undo(before)
                    raise Unsplittable("a single sample does not fit") from None
                failed = error
            else:
                done.append((end - begin, logs, sparse))
                begin = end
                continue
            failed.__traceback__ = failed.__context__ = None
            put_back(at)
            own.rows = -(-(end - begin) // 2)
        if not self.optimizer.built:
            self.optimizer.build(self.variables)
        now = self.close([sparse for _, _, sparse in done], state)
        if now[HELD] != state[HELD]:
            put_back(before)
        return self._logs(done, pieces.size), now

    def _undo(self, before):
        for gathered in self.gathered:
            gathered.assign(self.tf.zeros_like(gathered))
        put_back(before)

    def _logs(self, done, size):
        """Results of metrics are those after the last part; what else the step gives is a mean of the parts."""
        last = done[-1][1]
        if not isinstance(last, dict):
            return last
        counted = {metric.name for metric in self.model.metrics}
        found = {}
        for name, value in last.items():
            if name in counted or isinstance(value, dict):
                found[name] = value
            else:
                terms = [self.tf.cast(logs[name], self.tf.float32) * (rows / size) for rows, logs, _ in done]
                found[name] = self.tf.add_n(terms)
        return found

    # --- what it is ---------------------------------------------------------------------------------------

    def _learn(self, pieces):
        """Raise where the step's gradients are not the mean of those of its samples."""
        tf = self.tf
        one, again, other, both = self._seen(pieces)
        halves = one + other
        size, length = float(tf.norm(both)), float(tf.reduce_sum(halves * halves))
        if not size or not length:
            raise Unsplittable("its train_step has no gradients to tell parts by")
        times = float(tf.reduce_sum(both * halves)) / length
        off = float(tf.norm(both - times * halves)) / size
        noise = float(tf.norm(one - again)) / max(float(tf.norm(one)), 1e-12)
        norms = any("BatchNormalization" in type(layer).__name__ for layer in self.model._flatten_layers())
        room = max(_SAME, _NOISE * noise, _MIXED if norms else 0.0)
        if abs(times - 1.0) < max(_SAME, min(0.2, room)) and off <= room:
            raise Unsplittable("its loss is a sum over the batch: what it tells of it would be that of a part")
        if off > room or abs(times - 0.5) > max(_SAME, min(0.2, room)):
            words = "the gradients of two halves do not make those of the whole (off by %.2g)"
            raise Unsplittable(words % max(off, abs(2 * times - 1.0)))
        if norms:
            self.exact, self.because = False, "BatchNormalization takes its statistics from each part"
        elif noise > _SAME:
            self.exact, self.because = False, "random numbers are drawn anew for each part"

    def _seen(self, pieces):
        """The gradients of a few samples, of the same once more, of as many others, and of both together."""
        few = min(_FEW, pieces.size // 2)
        before = values_of(self.tf, self.model)
        while few:
            try:
                cuts = [(0, few), (0, few), (few, 2 * few), (0, 2 * few)]
                return [self._flat(pieces.cut(*cut)) for cut in cuts]
            except Exception as error:
                if not self.own.split.is_oom(error):
                    raise
            finally:
                put_back(before)
            few //= 2
        raise Unsplittable("not even two samples fit")

    def _flat(self, data):
        found = self.probe(data)
        flat = [self.tf.reshape(self.tf.cast(found[place], self.tf.float32), [-1]) for place in sorted(found)]
        return self.tf.concat(flat, 0) if flat else self.tf.zeros((1,))


def values_of(tf, model):
    """What a step changes beside the weights, and what it is now."""
    return [(variable, tf.identity(variable.value)) for variable in changing(model)]


def put_back(values):
    for variable, value in values:
        variable.assign(value)


def catching(optimizers, noted):
    """Note what optimizers are called with, in place of the update."""

    def note(optimizer):
        def apply_gradients(grads_and_vars, *_args, **_kwargs):
            noted.append((optimizer, list(grads_and_vars)))

        def apply(grads, trainable_variables=None, *_args, **_kwargs):
            variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
            noted.append((optimizer, list(zip(grads, variables))))  # noqa: B905

        return {"apply_gradients": apply_gradients, "apply": apply}

    return _in_place(optimizers, note)


def guarding(tf, optimizers, state, found):
    """Make an update when all of its gradients are there, and only if they are numbers; notes whether they are.

    A step that fails before has then changed no weight.
    """

    def guard(optimizer):
        def apply_gradients(grads_and_vars, *_args, **_kwargs):
            pairs = list(grads_and_vars)
            found.append(is_good(tf, optimizer, pairs, state))
            known = [getattr(gradient, "values", gradient) for gradient, _ in pairs if gradient is not None]
            if not optimizer.built:
                optimizer.build([variable for _, variable in pairs])
            ours = {name: optimizer.__dict__.pop(name) for name in _CALLS}
            try:
                with tf.control_dependencies(known):
                    _where(tf, found[-1], lambda: update(tf, optimizer, pairs, state))
            finally:
                optimizer.__dict__.update(ours)
            return optimizer.iterations

        def apply(grads, trainable_variables=None, *args, **kwargs):
            variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
            return apply_gradients(zip(grads, variables), *args, **kwargs)  # noqa: B905

        return {"apply_gradients": apply_gradients, "apply": apply}

    return _in_place(optimizers, guard)


def is_good(tf, optimizer, pairs, state):
    """Whether an update is to be made: its gradients are numbers, or nobody asks."""
    seen = [] if scales_loss(optimizer) else [gradient for gradient, _ in pairs if gradient is not None]
    return tf.logical_or(finite(tf, seen), state[GUARDING] < 1) if seen else tf.constant(True)


def _where(tf, good, act):
    """Act where it is so, within a graph or not."""

    def done():
        act()
        return tf.constant(0)

    if tf.executing_eagerly():
        return done() if bool(good) else None
    return tf.cond(good, done, lambda: tf.constant(0))


@contextmanager
def _in_place(optimizers, make):
    for optimizer in optimizers:
        # Not through `setattr`: Keras and TensorFlow would take it for a part of the optimizer.
        optimizer.__dict__.update(make(optimizer))
    try:
        yield
    finally:
        for optimizer in optimizers:
            for name in _CALLS:
                optimizer.__dict__.pop(name, None)
