"""The backward of a part of a batch: it begins with what the part counts for, in place of one."""

import functools

from ...heal.leaves import Unsplittable


class WeighedBackward:
    """Stands around `torch.autograd.backward`, which every backward goes through."""

    def __init__(self, split):
        self.split, self.torch, self.guard = split, split.torch, split.guard
        self.busy = False  # within one: what is called there is its own affair

    def patch(self):
        autograd, split = self.torch.autograd, self.split
        inner = autograd.backward

        @functools.wraps(inner)
        def backward(tensors, grad_tensors=None, *args, **kwargs):
            if self.busy or (not split.drawn and split.now is None):
                if split.waits:
                    split.handover.backward()
                return inner(tensors, grad_tensors, *args, **kwargs)
            self.busy = True
            try:
                try:
                    grad_tensors = self._weighed(tensors, grad_tensors)
                except Exception as error:
                    self.guard.caught("backward", error)
                return inner(tensors, grad_tensors, *args, **kwargs)
            finally:
                self.busy = False
                self.guard(split.once.gathered_by)(split.now)

        autograd.backward = backward

    def _weighed(self, tensors, given):
        """The gradients to begin with, each times what the part counts for."""
        split = self.split
        for course in split.drawn:
            course.lesson.trained = True
            course.serial += 1
        split.drawn = []
        course = split.now
        if course is None or course.batch is None:
            return given
        roots = [tensors] if isinstance(tensors, self.torch.Tensor) else list(tensors)
        given = [given] if given is None or isinstance(given, self.torch.Tensor) else list(given)
        given += [None] * (len(roots) - len(given))
        rule = "samples"
        try:
            split.once.before_backward(course)
            rule = course.lesson.rule(course, split.backwards, roots[0])
        except Unsplittable as error:
            split.cannot(course.lesson, str(error))
        split.backwards += 1
        weight = course.lesson.share(course, rule)
        return [self._times(root, one, weight) for root, one in zip(roots, given)]  # noqa: B905

    def _times(self, root, given, weight):
        if given is not None:
            return given * weight
        return self.torch.full_like(root, weight) if root.numel() == 1 else None
