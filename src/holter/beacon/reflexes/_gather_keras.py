"""The step of a user's own in parts (Keras): the gradients of all parts gathered, and the optimizer called once.

Whether their mean is the gradient of the whole is seen beforehand in those of a few samples, together and in two
halves: not where the step compares its samples. Exact where these are the same; where random numbers or the statistics
of a batch explain the difference, equivalent. Metrics are told of each part; their mean is that over batches where
parts are of one size.
"""

from ._leaves import Unsplittable
from ._step_keras import HELD, after, put_back, update, values_of
from ._updates_keras import catching, is_good, where

_FEW = 8  # samples of each half
_SAME = 1e-3
_NOISE = 3.0  # times what two runs of the same samples differ by
_MIXED = 0.5  # with BatchNormalization, whose statistics are those of the half


class Gather:
    """Gradients of parts, gathered in variables of their own; made when the first batch does not fit."""

    def __init__(self, own, pieces):
        self.own, self.tf, self.model = own, own.tf, own.model
        self.optimizer = None  # the one that the step calls
        self.variables, self.places = [], {}  # what the step updates; a model may make its weights in its first step
        self.gathered = None
        self.exact, self.because = True, ""
        self.sums = False  # the loss is a sum over samples, no mean
        self.probe = own.function(self.probing)
        self.learn(pieces)
        self.gathered = [self.tf.Variable(self.tf.zeros_like(one), trainable=False) for one in self.variables]
        self.part, self.close = own.function(self.one_part), own.function(self.closing)

    # --- a part -------------------------------------------------------------------------------------------

    def values(self):
        """What a step changes beside the weights, and what it is now."""
        return values_of(self.tf, self.model)

    def has_norms(self):
        return any("BatchNormalization" in type(layer).__name__ for layer in self.model._flatten_layers())

    def step(self, data, noted):
        """Run the user's step; what it would update is noted instead."""
        with catching(self.own.optimizers, noted):
            return self.own.inner_step(self.model, data)

    def caught(self, data):
        """Run the user's step and give its logs and gradients, by the place of their variables."""
        noted = []
        logs = self.step(data, noted)
        if len(noted) != 1:
            words = "its step makes %d updates, and parts make one" if noted else "its step makes no update"
            raise Unsplittable(words % len(noted) if noted else words)
        self.optimizer, pairs = noted[0]
        if pairs is None:
            raise Unsplittable("its update is made under a condition")
        found = {}
        for gradient, variable in pairs:
            if gradient is None:
                continue
            if id(variable) not in self.places:
                if self.gathered is not None:
                    raise Unsplittable("its step does not always update the same weights")
                self.places[id(variable)] = len(self.variables)
                self.variables.append(variable)
            found[self.places[id(variable)]] = gradient
        return logs, found

    def probing(self, data):
        return self.dense(self.caught(data)[1])

    def dense(self, found):
        return {str(place): self.tf.convert_to_tensor(gradient) for place, gradient in found.items()}

    def one_part(self, data, share):
        tf = self.tf
        logs, found = self.caught(data)
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

    def pairs(self, sparse):
        """The gathered gradients, each with its variable."""
        tf, pairs = self.tf, []
        for place, (variable, gathered) in enumerate(zip(self.variables, self.gathered)):  # noqa: B905
            rows = [one[str(place)] for one in sparse if str(place) in one]
            if rows:
                values, indices = (tf.concat([getattr(one, at) for one in rows], 0) for at in ("values", "indices"))
                pairs.append((tf.IndexedSlices(values, indices, rows[0].dense_shape), variable))
            else:
                pairs.append((tf.identity(gathered), variable))
        return pairs

    def closing(self, sparse, state):
        tf, pairs = self.tf, self.pairs(sparse)
        good = is_good(tf, self.optimizer, pairs, state)
        where(tf, good, lambda: update(tf, self.optimizer, pairs, state))
        state = after(tf, state, good)
        with tf.control_dependencies([state]):
            self.empty()
        return state

    def empty(self):
        for gathered in self.gathered:
            gathered.assign(self.tf.zeros_like(gathered))

    # --- a batch ------------------------------------------------------------------------------------------

    def run(self, pieces, state):
        """All parts and the update."""
        before = self.values()
        done = self.all_parts(pieces, before)
        now = self.close([sparse for _, _, sparse in done], state)
        if now[HELD] != state[HELD]:
            put_back(before)
        return self._logs(done, pieces.size), now

    def all_parts(self, pieces, before):
        """Parts that do not fit are made smaller, those that did are not run again: samples, logs, sparse gradients."""
        own, tf = self.own, self.tf
        done, begin = [], 0
        while begin < pieces.size:
            end = min(pieces.size, begin + own.rows)
            at = self.values()
            share = 1.0 if self.sums else (end - begin) / pieces.size
            try:
                logs, sparse = self.part(pieces.cut(begin, end), tf.constant(share, tf.float32))
            except Exception as error:
                if not own.split.is_oom(error):
                    self.undo(before)
                    raise
                if end - begin == 1:
                    self.undo(before)
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
        return done

    def undo(self, before):
        """Let go of what was gathered, and put back what was written."""
        self.empty()
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

    def learn(self, pieces):
        """Raise where the step's gradients are not the mean of those of its samples."""
        tf = self.tf
        one, again, other, both = self._seen(pieces)
        halves = one + other
        size, length = float(tf.norm(both)), float(tf.reduce_sum(halves * halves))
        if not size or not length:
            raise Unsplittable("its step has no gradients to tell parts by")
        times = float(tf.reduce_sum(both * halves)) / length
        off = float(tf.norm(both - times * halves)) / size
        noise = float(tf.norm(one - again)) / max(float(tf.norm(one)), 1e-12)
        norms = self.has_norms()
        room = max(_SAME, _NOISE * noise, _MIXED if norms else 0.0)
        self.sums = abs(times - 1.0) < max(_SAME, min(0.2, room)) and off <= room
        if self.sums:
            self.take_sums()
        elif off > room or abs(times - 0.5) > max(_SAME, min(0.2, room)):
            words = "the gradients of two halves do not make those of the whole (off by %.2g)"
            raise Unsplittable(words % max(off, abs(2 * times - 1.0)))
        if norms:
            self.exact, self.because = False, "BatchNormalization takes its statistics from each part"
        elif noise > _SAME:
            self.exact, self.because = False, "random numbers are drawn anew for each part"

    def take_sums(self):
        """Whether a loss that is a sum over the batch can be had in parts."""
        raise Unsplittable("its loss is a sum over the batch: what it tells of it would be that of a part")

    def _seen(self, pieces):
        """The gradients of a few samples, of the same once more, of as many others, and of both together."""
        few = min(_FEW, pieces.size // 2)
        before = self.values()
        while few:
            try:
                cuts = [(0, few), (0, few), (few, 2 * few), (0, 2 * few)]
                return [self.gradients(pieces.cut(*cut)) for cut in cuts]
            except Exception as error:
                if not self.own.split.is_oom(error):
                    raise
            finally:
                put_back(before)
            few //= 2
        raise Unsplittable("not even two samples fit")

    def gradients(self, data):
        """Those of some samples, in one row."""
        return self.in_a_row(self.probe(data))

    def in_a_row(self, found):
        flat = [self.tf.reshape(self.tf.cast(found[place], self.tf.float32), [-1]) for place in sorted(found)]
        return self.tf.concat(flat, 0) if flat else self.tf.zeros((1,))
