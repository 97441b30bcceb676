"""One training step of Keras on TensorFlow, taken apart: what it computes, and what it writes.

Keras' own `train_step` is run with a stand-in for the model that notes the gradients, the loss and the metrics' input
instead of writing them. So the step is that of the installed version, and what is written can wait until it is known
to be good: all of it, or nothing.
"""

# What is handed from step to step: updates held back so far, of these in a row up to now, whether any is to be, what
# the learning rate is multiplied with, and the steps since one was held back.
HELD, IN_A_ROW, GUARDING, FACTOR, STEPS = range(5)
NEW = (0.0, 0.0, 1.0, 1.0, 0.0)

_SMALL = 1 << 12  # elements of a gradient that is read at every step
_AT_FIRST, _EVERY = 32, 16  # the steps at which larger ones are read, too


class Stand:
    """Stands in for a model within `train_step`."""

    def __init__(self, model):
        self._model = model
        self._loss_tracker = _Tracker()
        self.optimizer = _Optimizer(model.optimizer) if model.optimizer is not None else None
        self.measured = None

    def __getattr__(self, name):
        return getattr(self._model, name)

    def __call__(self, *args, **kwargs):
        return self._model(*args, **kwargs)

    def compute_metrics(self, *args, **kwargs):
        self.measured = args, kwargs
        return {}

    @property
    def y_pred(self):
        args, kwargs = self.measured
        return kwargs["y_pred"] if "y_pred" in kwargs else args[2]

    @property
    def loss(self):
        return self._loss_tracker.noted[0][0]

    @property
    def noted(self):
        """What the tracker of the loss was to be told."""
        return self._loss_tracker.noted

    @property
    def gradients(self):
        return self.optimizer.gradients if self.optimizer is not None else []


class _Tracker:
    def __init__(self):
        self.noted = None

    def update_state(self, *args, **kwargs):
        self.noted = args, kwargs


class _Optimizer:
    def __init__(self, optimizer):
        self._optimizer = optimizer
        self.gradients = []

    def __getattr__(self, name):
        return getattr(self._optimizer, name)

    def apply_gradients(self, grads_and_vars, *_args, **_kwargs):
        self.gradients = list(grads_and_vars)

    def apply(self, grads, trainable_variables=None):
        self.gradients = list(zip(grads, trainable_variables))  # noqa: B905


def changing(model):
    """The variables that a step changes beside the weights: metrics, moving statistics, states of random layers."""
    found = list(model.metrics_variables)
    for layer in model._flatten_layers():
        if layer.trainable:
            found += layer._non_trainable_variables
    found += [variable for variable in model.non_trainable_variables if "seed" in variable.name]
    return list({id(variable): variable for variable in found}.values())


def values_of(tf, model):
    """What a step changes beside the weights, and what it is now."""
    return [(variable, tf.identity(variable.value)) for variable in changing(model)]


def changed_by(tf, model, before):
    """The same after a step: Keras makes some of its trackers only when it first needs them."""
    known = {id(variable) for variable, _ in before}
    new = [variable for variable in changing(model) if id(variable) not in known]
    return before + [(variable, tf.zeros_like(variable.value)) for variable in new]


def put_back(values):
    for variable, value in values:
        variable.assign(value)


def untold(tf, body, **how):
    """A function of ours, of which TensorFlow tells the user nothing: few samples and many are traced each for once."""
    made = tf.function(tf.autograph.experimental.do_not_convert(body), **how)
    made._omit_frequent_tracing_warning = True
    return made


def scales_loss(optimizer):
    """True for an optimizer that skips steps with infinite gradients by itself, and has to see them for that."""
    return any(cls.__name__ == "LossScaleOptimizer" for cls in type(optimizer).__mro__)


def update(tf, optimizer, gradients, state):
    """Apply gradients once, with the rate that the state asks for."""
    if not optimizer.built:
        optimizer.build([variable for _, variable in gradients])
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    rate = inner._get_current_learning_rate
    # Not through `setattr`: Keras and TensorFlow would take it for a part of the optimizer.
    inner.__dict__["_get_current_learning_rate"] = lambda: tf.cast(rate(), tf.float32) * state[FACTOR]
    try:
        optimizer.apply_gradients(gradients)
    finally:
        del inner.__dict__["_get_current_learning_rate"]


def settle(tf, model, gradients, loss, batch, write, before, state):
    """Write all that a step has computed, or where it is no number, nothing; returns the logs and the new state.

    `write` writes and returns the logs, `before` holds pairs of a variable and what it was. All gradients are known
    before the first is applied, so that a step that fails for want of memory has changed no weight.
    """
    judged = [] if scales_loss(model.optimizer) else [gradient for gradient, _ in gradients]
    good = tf.logical_or(sound(tf, [loss], judged, batch, state), state[GUARDING] < 1)
    made, tracker = {}, model._loss_tracker

    def written():
        if hasattr(tracker, "total"):  # begin anew after the mark below
            marked = tf.logical_and(tf.math.is_nan(tracker.total.value), state[GUARDING] > 0)
            for variable in (tracker.total, tracker.count):
                variable.assign(tf.where(marked, tf.zeros_like(variable.value), variable.value))
        made["logs"] = logs = write()
        made["flat"] = flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]
        return flat

    def left():
        put_back(before)
        if hasattr(tracker, "total"):  # the mean of no batch is no number, least of all the best
            none = tf.equal(tracker.count.value, 0)
            for variable, mark in ((tracker.total, float("nan")), (tracker.count, 1.0)):
                variable.assign(tf.where(none, tf.ones_like(variable.value) * mark, variable.value))
        logs = model.get_metrics_result()
        if made and list(logs) != list(made["logs"]):  # the user's own, of which nothing is known
            return [tf.zeros(value.shape, value.dtype) for value in made["flat"]]
        made.setdefault("logs", logs)
        return [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]

    if tf.executing_eagerly():
        flat = written() if bool(good) else left()
    else:
        flat = tf.cond(good, written, left)
    logs = tf.nest.pack_sequence_as(made["logs"], flat)
    return logs, after(tf, state, good)


def after(tf, state, good):
    """The state that is handed on to the next step."""
    one = tf.cast(tf.logical_not(good), state.dtype)
    row = (state[IN_A_ROW] + one) * one
    # Steps are counted up to a number that all of float32 can hold; after one that was held back all are read again.
    steps = (1 - one) * (state[STEPS] + 1 - tf.where(state[STEPS] >= 1 << 20, float(1 << 19), 0.0))
    return tf.stack([state[HELD] + one, row, state[GUARDING], state[FACTOR], steps])


def sound(tf, losses, gradients, batch, state):
    """Whether a step is made of numbers.

    To read all gradients takes a tenth of a step where most of it is reading weights. A layer's large gradient is
    hardly ever the only thing that is no number, unless the batch has such a thing already: so the large ones are read
    where that is so, and now and then.
    """
    gradients = [gradient for gradient in gradients if gradient is not None]
    large = [one for one in gradients if not hasattr(one, "values") and (one.shape.num_elements() or 0) > _SMALL]
    known = {id(one) for one in large}
    good = finite(tf, [*losses, *(one for one in gradients if id(one) not in known)])
    if not large:
        return good
    due = tf.logical_or(state[STEPS] < _AT_FIRST, tf.equal(tf.math.floormod(state[STEPS], _EVERY), 0))
    due = tf.logical_or(due, tf.logical_not(finite(tf, tf.nest.flatten(batch))))
    return tf.logical_and(good, tf.cond(due, lambda: finite(tf, large), lambda: tf.constant(True)))


def finite(tf, tensors):
    """Whether all numbers of these tensors are finite: a sum is not when one of them is not."""
    sums = []
    for tensor in tensors:
        if tensor is None or not hasattr(tensor, "dtype"):
            continue
        values = getattr(tensor, "values", tensor)  # of a gradient with only some rows
        if values.dtype.is_floating:
            if values.dtype.size < 4:
                values = tf.cast(values, tf.float32)
            sums.append(tf.cast(tf.reduce_sum(values), tf.float32))
    return tf.math.is_finite(tf.add_n(sums)) if sums else tf.constant(True)
