"""A call of a Keras model outside of training that ran out of memory (TensorFlow) is made again in parts. Keeps: exact.

Asked only when the call has failed, from outside and with no tape that would have to see it: all held-out samples at
once, say. First it is seen, on two samples, that each has its output by itself and that the call writes nothing.
`predict` and `evaluate` come in batches of their own, and are left alone.
"""

import sys
import weakref

from ...heal.leaves import Unsplittable
from .micro_batch import Batch, put_back

_ROOM = 1e-2


class Evaluation:
    """Asked with a call that has failed."""

    def __init__(self, healer):
        self.healer, self.agent, self.loop, self.tf = healer, healer.agent, healer.loop, healer.tf
        self.could_record = sys.modules["tensorflow.python.eager.record"].could_possibly_record
        self.proven = weakref.WeakKeyDictionary()  # by model: the samples that fit at once, 0 where it is left alone

    def again(self, inner, model, args, kwargs, error):
        """What the call would have given, in a tuple; None where it is to fail."""
        loop, tf = self.loop, self.tf
        if loop.in_fit or loop.busy or not loop.mine() or not tf.executing_eagerly() or self.could_record():
            return None
        if not self.healer.is_oom(error) or self.proven.get(model) == 0 or not _is_one_batch(tf, args, kwargs):
            return None
        error.__traceback__ = error.__context__ = None  # its frames hold the tensors of what failed
        try:
            return (self._in_parts(inner, model, Batch(tf, args[0]), kwargs),)
        except Exception as failed:
            because = "an evaluation: %s" % self.healer.words_for(failed)
        self.proven[model] = 0
        step, name = self.agent.beat.steps + 1, type(model).__name__
        self.agent.say("declined", act="split-batch", step=step, model=name, because=because)
        return None

    def _in_parts(self, inner, model, batch, kwargs):
        def call(begin, end):
            return inner(model, batch.packed(batch.cut(begin, end)), **kwargs)

        is_new = model not in self.proven
        if is_new:
            self._prove(model, batch, call)
        rows = min(self.proven.get(model) or batch.size, -(-batch.size // 2))
        done, begin = [], 0
        while begin < batch.size:
            end = min(batch.size, begin + rows)
            try:
                done.append(call(begin, end))
                begin = end
                continue
            except Exception as error:
                if not self.healer.is_oom(error):
                    raise
                failed = error
            failed.__traceback__ = failed.__context__ = None
            if end - begin == 1:
                raise Unsplittable("a single sample does not fit")
            rows = -(-(end - begin) // 2)
        whole, self.proven[model] = self._join(done), rows
        if is_new:
            text = "the batch of %d did not fit: it is run in %d parts of up to %d"
            self.agent.say(
                "intervention", act="split-batch", keeps="exact", step=self.agent.beat.steps + 1, because="",
                model=type(model).__name__, batch=batch.size, rows=rows,
                text=text % (batch.size, -(-batch.size // rows), rows),
            )  # fmt: skip
        return whole

    def _prove(self, model, batch, call):
        """Two samples together against one by one."""
        tf = self.tf
        if any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
            raise Unsplittable("a stateful layer keeps a state for each sample of the batch")
        if batch.size < 2:
            raise Unsplittable("a single sample does not fit")
        variables = [getattr(variable, "_value", variable) for variable in model.non_trainable_variables]
        before = [(variable, tf.identity(variable)) for variable in variables]
        together = tf.nest.flatten(call(0, 2))
        apart = tf.nest.flatten(self._join([call(0, 1), call(1, 2)]))
        written = [variable for variable, value in before if not bool(tf.reduce_all(tf.equal(variable, value)))]
        if written:
            put_back(before)
            raise Unsplittable("the call writes %s" % written[0].name)
        for left, right in zip(together, apart):  # noqa: B905
            if left.shape != right.shape or not left.shape.rank or left.shape[0] != 2:
                raise Unsplittable("the model does not give one output for each sample")
            if left.dtype.is_floating:
                left, right = tf.cast(left, tf.float32), tf.cast(right, tf.float32)
                room = _ROOM * float(tf.reduce_max(tf.abs(left))) + 1e-6
                if float(tf.reduce_max(tf.abs(left - right))) > room:
                    raise Unsplittable("the samples of a batch depend on each other")

    def _join(self, parts):
        flat = [self.tf.nest.flatten(part) for part in parts]
        if not all(self.tf.is_tensor(leaf) for part in flat for leaf in part):
            raise Unsplittable("the model gives something else than tensors")
        joined = [self.tf.concat(same, 0) for same in zip(*flat)]  # noqa: B905
        return self.tf.nest.pack_sequence_as(parts[0], joined)


def _is_one_batch(tf, args, kwargs):
    """A call with a batch and nothing else that would have to be cut, as one evaluates."""
    if len(args) != 1 or kwargs.get("training") or any(name != "training" for name in kwargs):
        return False
    return all(
        isinstance(leaf, tf.Tensor) or (type(leaf).__module__ == "numpy" and leaf.ndim)
        for leaf in tf.nest.flatten(args[0])
    )
