"""What a step with a tape does once for a whole batch (TensorFlow): clips its gradients, and tells its metrics.

While a part is traced, both are noted instead. What is clipped are the gradients of the whole batch; metrics are told
what they would have been told, put together from all parts. Clipping within the model is none of this, and is done.
"""

import functools

from ._leaves import Unsplittable

_CLIPS = ("clip_by_global_norm", "clip_by_norm", "clip_by_value")


class Deferred:
    """Stands around these calls while a part is traced."""

    def __init__(self, tf, metric_class, keeps_metrics):
        self.tf, self.metric_class = tf, metric_class
        self.keeps_metrics = keeps_metrics  # they are told at once, too
        self.graded = []  # what tapes gave
        self.clips = []  # which gradients, and what becomes of them
        self.told = []  # metrics, and what they are told
        self.patched = []
        self.within = False

    def __enter__(self):
        tape = self.tf.GradientTape
        self._put(tape, "gradient", self._noting_gradients(tape.gradient))
        for name in _CLIPS:
            inner = getattr(self.tf, name)
            self._put(self.tf, name, self._clip_all(inner) if name == _CLIPS[0] else self._clip_one(inner))
        for cls in _subclasses(self.metric_class):
            # One of the user's own is told of each part: AutoGraph would take what stands around it for theirs.
            if "update_state" in vars(cls) and cls.__module__.partition(".")[0] == "keras":
                self._put(cls, "update_state", self._tell(cls.update_state))
        return self

    def __exit__(self, *_):
        for owner, name, inner in reversed(self.patched):
            setattr(owner, name, inner)

    def _put(self, owner, name, ours):
        self.patched.append((owner, name, getattr(owner, name)))
        setattr(owner, name, ours)

    # --- gradients ----------------------------------------------------------------------------------------

    def _noting_gradients(self, inner):
        @functools.wraps(inner)
        def gradient(*args, **kwargs):
            found = inner(*args, **kwargs)
            self.graded += self.tf.nest.flatten(found)
            return found

        return gradient

    def _are_gradients(self, tensors):
        return all(any(one is tensor for one in self.graded) for tensor in tensors)

    def _clip_all(self, inner):
        @functools.wraps(inner)
        def clip_by_global_norm(t_list, clip_norm, use_norm=None, name=None):
            some = [tensor for tensor in t_list if tensor is not None]
            if use_norm is not None or not self._are_gradients(some):
                return inner(t_list, clip_norm, use_norm, name)
            self.clips.append((some, lambda gradients: inner(gradients, clip_norm)[0]))
            return list(t_list), self.tf.linalg.global_norm(some)

        return clip_by_global_norm

    def _clip_one(self, inner):
        @functools.wraps(inner)
        def clip(t, *args, **kwargs):
            if not self._are_gradients([t]):
                return inner(t, *args, **kwargs)
            self.clips.append(([t], lambda gradients: [inner(one, *args, **kwargs) for one in gradients]))
            return t

        return clip

    def places_of(self, found):
        """The clips by the places of the gradients that are applied; raises where something else was clipped."""
        by_place = []
        for tensors, act in self.clips:
            places = [place for tensor in tensors for place, one in found.items() if one is tensor]
            if len(places) != len(tensors):
                raise Unsplittable("it clips gradients and goes on with them before they are applied")
            by_place.append((places, act))
        return by_place

    # --- metrics ------------------------------------------------------------------------------------------

    def _tell(self, inner):
        @functools.wraps(inner)
        def update_state(metric, *args, **kwargs):
            if self.within:
                return inner(metric, *args, **kwargs)
            self.told.append((metric, (args, kwargs)))
            if not self.keeps_metrics:
                return None
            self.within = True
            try:
                return inner(metric, *args, **kwargs)
            finally:
                self.within = False

        return update_state

    def tensors(self):
        """What the metrics are told, as far as it is made of tensors."""
        return [leaf for _, told in self.told for leaf in self.tf.nest.flatten(told) if self.tf.is_tensor(leaf)]

    def tell(self, tensors):
        """Tell the metrics, with these in place of those."""
        tensors = iter(tensors)
        for metric, told in self.told:
            args, kwargs = self.tf.nest.map_structure(
                lambda leaf: next(tensors) if self.tf.is_tensor(leaf) else leaf, told
            )
            metric.update_state(*args, **kwargs)


def _subclasses(cls):
    yield cls
    for one in cls.__subclasses__():
        yield from _subclasses(one)
