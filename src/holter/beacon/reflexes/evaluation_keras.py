"""Run a model's call outside of training in parts (Keras on TensorFlow), where its batch does not fit. Keeps: exact.

Only a call from outside, with no tape that would have to see it: all held-out samples at once, say. On a GPU the error
is caught; on a CPU there is none, so that a batch larger than all before is judged by what two small parts take.
`predict` and `evaluate` come in batches of their own, and are left alone.
"""

import functools
import math
import sys
import weakref
from threading import get_ident

from ._leaves import Unsplittable
from ._pieces_keras import Pieces, join, mixes_samples
from ._tryout_keras import Growth, estimate, foretell


class Evaluation:
    """Stands around `Model.__call__`."""

    def __init__(self, split):
        self.split, self.loop, self.tf = split, split.loop, split.tf
        self.could_record = sys.modules["tensorflow.python.eager.record"].could_possibly_record
        self.calls = weakref.WeakKeyDictionary()  # by model
        self.within = False

    def patch(self, model_class):
        inner = model_class.__call__
        loop, eagerly = self.loop, self.tf.executing_eagerly

        @functools.wraps(inner)
        def __call__(model, *args, **kwargs):  # noqa: N807
            if self.within or loop.in_fit or loop.busy or get_ident() != loop.thread or not eagerly():
                return inner(model, *args, **kwargs)
            self.within = True
            try:
                if self.could_record() or not _is_one_batch(self.tf, args, kwargs):
                    return inner(model, *args, **kwargs)
                calls = self.calls.get(model)
                if calls is None:
                    calls = self.calls[model] = Calls(self.split, model)
                return calls.call(inner, args[0], kwargs)
            finally:
                self.within = False

        model_class.__call__ = __call__


class Calls:
    """Those of one model."""

    def __init__(self, split, model):
        self.split, self.tf, self.model = split, split.tf, weakref.ref(model)
        self.name = type(model).__name__
        self.rows = self.told = 0
        self.growth = Growth()
        self.words = ""
        self.is_left_alone = False

    def call(self, inner, x, kwargs):
        model, failed = self.model(), None
        if not self.is_left_alone:
            self._look_ahead(inner, model, x, kwargs)
        if not self.rows:
            try:
                return inner(model, x, **kwargs)
            except Exception as error:
                if self.is_left_alone or not self.split.is_oom(error):
                    raise
                failed = error
            failed.__traceback__ = failed.__context__ = None
        try:
            return self._in_parts(inner, model, x, kwargs, failed)
        except Exception as error:
            known = isinstance(error, Unsplittable)
            self._leave_alone(str(error) if known else "a part failed (%s)" % type(error).__name__)
        if failed is not None:
            raise failed
        return inner(model, x, **kwargs)

    def _in_parts(self, inner, model, x, kwargs, failed):
        pieces = Pieces(self.tf, x)
        if failed is not None:
            self.rows = pieces.size
            self._halve()
        self._check(inner, model, x, kwargs)
        done, begin = [], 0
        while begin < pieces.size:
            end = min(pieces.size, begin + self.rows)
            try:
                done.append(inner(model, pieces.cut(begin, end), **kwargs))
                begin = end
                continue
            except Exception as error:
                if not self.split.is_oom(error):
                    raise
                failed = error
            failed.__traceback__ = failed.__context__ = None
            self._halve()
        whole = join(self.tf, done)
        self.split.tell_split(self, pieces.size, self.words or "did not fit")
        return whole

    def _halve(self):
        if self.rows < 2:
            raise Unsplittable("a single sample does not fit")
        self.rows = -(-self.rows // 2)

    def _check(self, inner, model, x, kwargs):
        def call(some, **_):
            return inner(model, some, **kwargs)

        states = self.split.states_of(model)
        if states:
            raise Unsplittable(states)
        if not self.told and mixes_samples(self.tf, call, x):
            raise Unsplittable("the samples of a batch depend on each other")

    def _look_ahead(self, inner, model, x, kwargs):
        """On a CPU, before a batch that is larger than all before: will it fit?"""
        if self.rows or not self.split.dies_without_a_word():
            return
        elements = sum(math.prod(leaf.shape) for leaf in self.tf.nest.flatten(x))
        if not self.growth.exceeds(elements):
            return
        try:
            pieces = Pieces(self.tf, x)
            need = estimate(self.tf, model, pieces.size, elements)
            _calm, rows, self.words, _ = foretell(pieces, need, lambda: _Trial(inner, model, kwargs))
            self.rows = rows or 0
        except Exception as error:
            if not isinstance(error, Unsplittable):
                self.split.guest.guard.caught("evaluation", error)
            self.is_left_alone = True

    def _leave_alone(self, why):
        self.is_left_alone, self.rows = True, 0
        self.split.tell_declined(self.name, "an evaluation: %s" % why)

    def keeps(self):
        return "exact", ""


class _Trial:
    """A part of a call: it leaves nothing behind."""

    def __init__(self, inner, model, kwargs):
        self.call = lambda cut: inner(model, cut, **kwargs)

    def ready(self, cuts):
        for cut in cuts:
            self.call(cut)

    def try_out(self, cut):
        self.call(cut)

    def forget(self, _before):
        """There is nothing."""


def _is_one_batch(tf, args, kwargs):
    """A call with a batch and nothing else that would have to be cut, as one evaluates; not one that builds a model."""
    if len(args) != 1 or kwargs.get("training") or any(name != "training" for name in kwargs):
        return False
    return all(
        isinstance(leaf, tf.Tensor) or (type(leaf).__module__ == "numpy" and leaf.ndim)
        for leaf in tf.nest.flatten(args[0])
    )
