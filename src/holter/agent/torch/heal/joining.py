"""How the outputs of chunks make up the output of the full batch: learned on two samples, together and one by one.

The same look tells whether the samples of a batch depend on each other: then the call can't be run in chunks.
"""

from ...heal.leaves import Unsplittable
from .by_sample import AVERAGE, SHOWN, SUM

ZERO = "zero"  # of both samples: whether it is a sum or a mean can't be seen


class Rows:
    """An output that holds the samples one after the other along an axis, `each` entries for one."""

    graded = False

    def __init__(self, axis, each):
        self.axis, self.each = axis, each

    def empty(self, output, size):
        """A tensor for the full batch's output, by a chunk's."""
        shape = list(output.shape)
        shape[self.axis] = size * self.each
        return output.new_empty(shape)

    def put(self, full, output, begin, end, _weight):
        full.narrow(self.axis, begin * self.each, (end - begin) * self.each).copy_(output)

    def gradient(self, full, begin, end, _weight):
        return full.narrow(self.axis, begin * self.each, (end - begin) * self.each)


class Weighted:
    """An output without samples, such as a mean loss: a sum over the chunks, each with its weight."""

    graded = False

    def __init__(self, rule):
        self.rule = rule

    def empty(self, output, _size):
        return output.new_zeros(output.shape)

    def put(self, full, output, begin, _end, weight):
        if self.rule == ZERO and bool(output.any()):
            raise Unsplittable("a loss or figure was zero for all that it could be shown by")
        if full.is_floating_point():
            full.add_(output * weight)
        elif self.rule == "sum":
            full.add_(output)
        elif begin and not full.equal(output):
            raise Unsplittable("a figure of the whole batch is another for each chunk")
        else:
            full.copy_(output)

    def gradient(self, full, _begin, _end, weight):
        return full * weight


def weight(rule, counts, begin, end, size):
    """What a chunk's loss counts for in the full batch's."""
    if rule in ("sum", ZERO):
        return 1.0
    if rule == "mean":
        return (end - begin) / size
    found = counts[rule]
    total = float(found.sum())
    return float(found[begin:end].sum()) / total if total else (end - begin) / size


def label_counts(torch, leaves, axes, ignored):
    """For each input of whole numbers with samples: how many labels of each sample count, and how many after a shift.

    `ignored` are the labels that the losses within leave out. Language models shift the labels by one, so the first of
    each sample counts for nothing.
    """
    found = {}
    for n, (leaf, axis) in enumerate(zip(leaves, axes)):  # noqa: B905
        if axis != 0 or leaf.dtype not in (torch.long, torch.uint8):
            continue
        for name, labels in (("labels", leaf), ("shifted", leaf[:, 1:] if leaf.dim() == 2 else None)):
            for label in ignored if labels is not None else ():
                found[n, name, label] = (labels != label).reshape(labels.shape[0], -1).sum(1)
    return found


def unlike(torch, counts):
    """Two samples whose labels differ most in number: only such tell a mean over labels from one over samples.

    None where all samples have as many.
    """
    if not counts:
        return None
    table = torch.stack(list(counts.values()))
    gap, which = (table.amax(1) - table.amin(1)).max(0)
    pair = torch.stack([gap, table[which].argmin(), table[which].argmax()]).tolist()
    return tuple(pair[1:]) if pair[0] else None


def learn(torch, together, one, two, counts, picked, rules=()):
    """What each output is, from a pair of samples run together and one by one.

    `picked` are the rows of the two samples in the batch that the counts are of; `rules` is what is known of each
    output beforehand (`by_sample`).
    """
    if not len(together) == len(one) == len(two):
        raise Unsplittable("the model gives other outputs for other batch sizes")
    rules = rules or [SHOWN] * len(together)
    found = [_learn_one(torch, *four, counts, picked) for four in zip(together, one, two, rules)]  # noqa: B905
    for kind, output in zip(found, together):  # noqa: B905
        kind.shape, kind.dtype = tuple(output.shape), output.dtype
    return found


def _learn_one(torch, together, first, second, known, counts, picked):
    if together.dim() != first.dim() or first.dim() != second.dim():
        raise Unsplittable("an output has another shape for other batch sizes")
    if together.shape == first.shape:
        return Weighted(_rule(together, first, second, known, counts, picked))
    differ = [d for d in range(together.dim()) if together.shape[d] != first.shape[d]]
    if len(differ) != 1 or together.shape[differ[0]] != first.shape[differ[0]] + second.shape[differ[0]]:
        raise Unsplittable("an output of shape %s does not follow the batch" % (tuple(together.shape),))
    axis = differ[0]
    joined = torch.cat([first, second], axis)
    if not _close(joined, together):
        raise Unsplittable("the samples of a batch depend on each other inside the model")
    if first.shape[axis] != second.shape[axis]:
        raise Unsplittable("an output has more entries for one sample than for another")
    return Rows(axis, first.shape[axis])


def _rule(together, first, second, known, counts, picked):
    if known in (SHOWN, AVERAGE) and not any(bool(one.any()) for one in (together, first, second)):
        return ZERO
    if not together.is_floating_point():
        if known != SUM and together.equal(first) and together.equal(second):
            return "mean"
        # Where one is zero, the sum may be the larger of the two as well.
        shown = known == SUM or (bool(first.any()) and bool(second.any()))
        return "sum" if shown and together.equal(first + second) else _unclear()
    a, b = picked
    rules = [(name, *_shares(n[a], n[b])) for name, n in counts.items() if float(n[a]) != float(n[b])]
    rules += [("mean", 0.5, 0.5), ("sum", 1.0, 1.0)]
    if known != SHOWN:
        rules = [one for one in rules if one[0] == known or (known == AVERAGE and one[0] != "sum")]
    # Two ways of counting may both come close: the closest is the true one.
    gaps = [(float((first * x + second * y - together).abs().max()), n, name) for n, (name, x, y) in enumerate(rules)]
    _, n, name = min(gaps)
    _, of_first, of_second = rules[n]
    return name if _close(first * of_first + second * of_second, together) else _unclear()


def _shares(a, b):
    total = float(a + b)
    return (float(a) / total, float(b) / total) if total else (0.5, 0.5)


def _unclear():
    raise Unsplittable("a loss or figure of the whole batch is not the sum or mean of its samples'")


# By how much two ways of computing the same may differ, by the bytes of a number: all in all, and each element against
# the largest. A device's convolutions and products round float32 as well (TF32).
_ROUGH, _FINE, _FINEST = (3e-2, 3e-2), (5e-3, 5e-3), (1e-6, 1e-6)


def _close(one, other):
    if not one.is_floating_point():
        return one.equal(other)
    if not one.numel():
        return True
    size = one.element_size()
    if size < 4:
        one, other = one.float(), other.float()
    in_all, each = _ROUGH if size < 4 else _FINEST if size > 4 else _FINE if one.is_cuda else (1e-3, 1e-4)
    gap, scale = (one - other).abs(), other.abs()
    if not bool((gap <= each * (scale + scale.max()) + 1e-7).all()):
        return False
    return float(gap.norm()) <= in_all * float(scale.norm()) + 1e-6
