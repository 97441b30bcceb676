"""Hold back an update that is no number in a loop with a tape: TensorFlow with an optimizer of Keras.

`fit` has a guard of its own (`nan_keras`). Here it is the optimizer that is stood around. Eagerly its gradients are
read before the update; where the loop's step is traced, the question becomes a part of the graph, with a count of the
updates that were left out, which is read once a second. All gradients are read each time, so that no weight ever stops
being a number and there is nothing to go back from. Keeps: equivalent. It lets go when more than about one update in
five would have to be left out: then no batch is to blame, and the run ends with its true cause.
"""

import atexit
import functools
import weakref

from ._patience import Patience
from ._step_keras import finite, scales_loss

_TOLD = 5


class TapeHold:
    """Stands around `Optimizer.apply`."""

    def __init__(self, guest, loop, tensorflow):
        self.guest, self.loop, self.tf = guest, loop, tensorflow
        self.counts = weakref.WeakKeyDictionary()  # by optimizer: what its graphs have counted
        self.guarding = None  # a variable that all graphs ask
        self.optimizers = weakref.WeakSet()  # all that were met
        self.graph = tensorflow.compat.v1.get_default_graph
        self.noted = self.noted_in = None  # where an update is to be noted, and not made
        self.off = self.within = False
        self.held = self.read = 0
        self.patience = Patience()

    def note(self, noted):
        """Note updates in a list and make none, until there is no list."""
        self.noted, self.noted_in = noted, self.graph()

    def patch(self, owner):
        inner = owner.apply

        @functools.wraps(inner)
        def apply(optimizer, grads, trainable_variables=None, **kwargs):
            if self.noted is not None:
                variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
                is_sure = self.graph() is self.noted_in  # what is in a graph of a condition is seen only there
                self.noted.append((optimizer, list(zip(grads, variables)) if is_sure else None))  # noqa: B905
                return optimizer.iterations
            self.optimizers.add(optimizer)
            if self.within or not self._is_mine(optimizer):
                return inner(optimizer, grads, trainable_variables, **kwargs)
            self.within = True
            try:
                return self._apply(inner, optimizer, list(grads), trainable_variables, kwargs)
            finally:
                self.within = False

        owner.apply = apply
        self.loop.rarely.append(self.look)
        atexit.register(self.guest.guard(self.look))

    def _is_mine(self, optimizer):
        """Not a step of Keras' own, nor one that is spread over devices or skips such updates by itself."""
        loop, tf = self.loop, self.tf
        if self.off or loop.in_fit or loop.busy or tf.distribute.has_strategy() or scales_loss(optimizer):
            return False
        return loop.cpu_only or not tf.executing_eagerly()  # an answer from a device would have to be waited for

    def _apply(self, inner, optimizer, grads, variables, kwargs):
        tf, seen = self.tf, [gradient for gradient in grads if gradient is not None]
        if not seen:
            return inner(optimizer, grads, variables, **kwargs)
        if tf.executing_eagerly():
            if bool(finite(tf, seen)):
                return inner(optimizer, grads, variables, **kwargs)
            self._left_out(1, "the update of step %d was left out" % self._step())
            return optimizer.iterations
        count = self._count(optimizer)
        if not optimizer.built:
            optimizer.build(variables if variables is not None else optimizer._trainable_variables)
        good = tf.logical_or(finite(tf, seen), self.guarding < 1)

        def made():
            inner(optimizer, grads, variables, **kwargs)
            return tf.constant(0)

        def left():
            count.assign_add(1)
            return tf.constant(0)

        tf.cond(good, made, left)
        return optimizer.iterations

    def _count(self, optimizer):
        found = self.counts.get(optimizer)
        if found is None:
            with self.tf.init_scope():
                if self.guarding is None:
                    self.guarding = self.tf.Variable(1, trainable=False, name="holter_guarding")
                found = self.tf.Variable(0, trainable=False, name="holter_left_out")
            self.counts[optimizer] = found
        return found

    def look(self):
        """Once a second, and at the end: what have the graphs left out?"""
        if self.off or not self.counts:
            return
        total = sum(int(count.numpy()) for count in self.counts.values())
        new, self.read = total - self.read, total
        if new > 0:
            words = "the update of a step was" if new == 1 else "the updates of %d steps were" % new
            self._left_out(new, "%s left out up to step %d" % (words, self._step()))

    def _step(self):
        return self.guest.beat.steps + 1

    def _left_out(self, new, text):
        step = self._step()
        self.held += new
        if not self.patience.spend(step, new):
            self._let_go(step)
        elif self.held <= _TOLD or not self.held & (self.held - 1):
            self.guest.say(
                "intervention", act="hold-update", keeps="equivalent", step=step,
                text="%s: a gradient is not finite" % text, because="that batch is not learnt from",
            )  # fmt: skip

    def _let_go(self, step):
        self.off = True
        if self.guarding is not None:
            self.guarding.assign(0)
        because = (
            "%d of %d updates were no numbers: no batch is to blame; lower the learning rate, or clip the gradients"
        )
        self.guest.say("declined", act="hold-update", step=step, because=because % (self.held, step))
