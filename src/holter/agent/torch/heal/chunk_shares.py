"""What a part's gradient counts for in the whole batch's, by how the loss is made up.

Its share of the samples for a mean, all of it for a sum, its share of the labels for a mean over labels. Two parts of
different sizes tell what follows the batch and what does not, and whether samples are compared with each other: a
tensor that grows along two axes.
"""

import functools

from ...heal.leaves import Unsplittable

_IGNORED = -100


def settle(torch, one, other, leaves, axes, bounds):
    """The rule for a loss, from its readings in two parts of different sizes; raises where there is none.

    `bounds` are the rows of the two parts in the batch that the leaves are of.
    """
    for reading in (one, other):
        if reading.odd:
            raise Unsplittable(reading.odd)
    if _compares(one, other):
        raise Unsplittable("the loss compares the samples of a batch with each other")
    if one.size == other.size or len(one.paths) != len(other.paths):
        return one.guess
    rules, alone = [], False
    for first, second in zip(one.paths, other.paths):  # noqa: B905
        while first.then is not None and second.then is not None and first.numbers == second.numbers:
            first, second = first.then, second.then
        if first.kind == "none" or (first.numbers is not None and first.numbers == second.numbers):
            alone = True
        else:
            rules.append(_rule_of(torch, first, second, (one.size, other.size), leaves, axes, bounds))
    if not rules:
        return "samples"
    if any(rule != rules[0] for rule in rules):
        raise Unsplittable("the loss adds sums and means over the samples")
    if rules[0] == "sum" and alone:
        raise Unsplittable("the loss adds a term of its own to a sum over the samples")
    return rules[0]


def _rule_of(torch, first, second, sizes, leaves, axes, bounds):
    a, b = first.divisor, second.divisor
    if a is None or b is None:
        return "samples" if first.kind == "mean" else "sum"
    if a * sizes[1] == b * sizes[0]:
        return "samples"
    if first.kind == "sum" and a == b:
        return "sum"
    for n, (leaf, axis) in enumerate(zip(leaves, axes)):  # noqa: B905
        if axis == 0 and isinstance(leaf, torch.Tensor):
            for how in ("labels", "shifted", "marks"):
                counts = counts_of(torch, leaf, how)
                if counts is not None and [float(counts[x:y].sum()) for x, y in bounds] == [a, b]:
                    return how, n
    raise Unsplittable("the loss is divided by a number that is not found in the batch")


def counts_of(torch, leaf, how):
    """How much each sample counts for: by its labels, by those but the first, or by the marks of a mask."""
    rows = leaf.shape[0]
    if how == "marks":
        return leaf.reshape(rows, -1).sum(1, dtype=torch.float64)
    if leaf.dtype is not torch.long or leaf.dim() > 2 or (how == "shifted" and leaf.dim() != 2):
        return None
    labels = leaf[:, 1:] if how == "shifted" else leaf
    return (labels != _IGNORED).reshape(rows, -1).sum(1)


def share(torch, rule, leaves, size, begin, end):
    """What the gradient of a part counts for in the whole batch's."""
    if rule == "sum":
        return 1.0
    if rule != "samples":
        counts = counts_of(torch, leaves[rule[1]], rule[0])
        whole = float(counts.sum())
        if whole:
            return float(counts[begin:end].sum()) / whole
    return (end - begin) / size


def _compares(one, other):
    a, b = one.size, other.size
    if a == b or len(one.shapes) != len(other.shapes):
        return False
    for first, second in zip(one.shapes, other.shapes):  # noqa: B905
        if len(first) == len(second):
            grown = [n for n, m in zip(first, second) if n != m and n * b == m * a]  # noqa: B905
            if len(grown) > 1:
                return True
    return False


# --- The backward of a part of a batch: it begins with what the part counts for, in place of one


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
