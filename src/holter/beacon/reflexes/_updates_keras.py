"""Updates of a user's own step (Keras), met on their way to the optimizer: noted, or made if they are good."""

from contextlib import contextmanager

from ._step_keras import GUARDING, scales_loss, sound, update

_CALLS = ("apply_gradients", "apply")


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


def guarding(tf, optimizers, state, batch, found):
    """Make an update when all of its gradients are there, and only if they are numbers; notes whether they are.

    A step that fails before has then changed no weight.
    """

    def guard(optimizer):
        def apply_gradients(grads_and_vars, *_args, **_kwargs):
            pairs = list(grads_and_vars)
            found.append(is_good(tf, optimizer, pairs, state, batch))
            known = [getattr(gradient, "values", gradient) for gradient, _ in pairs if gradient is not None]
            if not optimizer.built:
                optimizer.build([variable for _, variable in pairs])
            ours = {name: optimizer.__dict__.pop(name) for name in _CALLS}
            try:
                with tf.control_dependencies(known):
                    where(tf, found[-1], lambda: update(tf, optimizer, pairs, state))
            finally:
                optimizer.__dict__.update(ours)
            return optimizer.iterations

        def apply(grads, trainable_variables=None, *args, **kwargs):
            variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
            return apply_gradients(zip(grads, variables), *args, **kwargs)  # noqa: B905

        return {"apply_gradients": apply_gradients, "apply": apply}

    return _in_place(optimizers, guard)


def is_good(tf, optimizer, pairs, state, batch=()):
    """Whether an update is to be made: its gradients are numbers, or nobody asks."""
    seen = [] if scales_loss(optimizer) else [gradient for gradient, _ in pairs if gradient is not None]
    if not seen:
        return tf.constant(True)
    return tf.logical_or(sound(tf, [], seen, batch, state), state[GUARDING] < 1)


def where(tf, good, act):
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
