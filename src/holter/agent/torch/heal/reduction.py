"""How a loss comes about from the samples of a batch, read off its graph: a mean of them, a sum, or something else."""

import functools

from ...heal.leaves import Unsplittable

_MAX_NODES = 4000
_LINEAR = (
    "Add", "Sub", "Neg", "Mul", "Div", "ToCopy", "View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Stack",
    "Cat", "Alias", "Clone", "Copy", "Expand", "Sum", "Mean", "Select", "Unbind",
)  # fmt: skip
_REDUCE = ("Sum", "Mean")
_MAX_DEPTH = 150  # nodes: further down is no loss over samples, but a sum over the weights


class Path:
    """One way on which samples come into the loss: how they are reduced, how many numbers, and what divides them."""

    def __init__(self, kind, numbers, divisor, then=None):
        self.kind, self.numbers, self.divisor = kind, numbers, divisor
        self.then = then  # where it is reduced axis by axis: the one before


class Reading:
    """What the graph of one chunk's loss looks like."""

    def __init__(self, root, size):
        self.size = size
        self.paths = []
        self.odd = ""
        node = root.grad_fn
        if node is None:
            self.odd = "the loss has no graph"
        elif root.numel() != 1:
            self.paths.append(Path("sum", root.numel(), None))
        else:
            self._down(node, None, 0)
        self.shapes = _shapes_of(node) if node is not None else []

    def _down(self, node, divisor, depth):
        """From the loss down to where the samples are."""
        name = type(node).__name__
        if depth > _MAX_DEPTH:
            return
        reduction = getattr(node, "_saved_reduction", None)
        inner = _inside_cut(node)
        if inner is not None:
            self._down(inner, divisor, depth + 1)
        elif reduction in (1, 2):
            weight = getattr(node, "_saved_total_weight", None)
            counted = float(weight) if reduction == 1 and weight is not None and weight.numel() == 1 else None
            numbers = _numbers_below(node)
            self.paths.append(
                Path("mean" if reduction == 1 else "sum", numbers, counted if reduction == 1 else divisor)
            )
        elif name.startswith(_REDUCE) and not _below(node).startswith(("Stack", "Cat")):
            self.paths.append(_reduced(node, divisor))
        elif name == "AccumulateGrad":
            self.paths.append(Path("none", None, None))
        elif name.startswith(_LINEAR):
            if name.startswith("Div"):
                other = getattr(node, "_saved_other", None)
                value = float(other) if other is not None and other.numel() == 1 else None
                divisor = value if divisor is None or value is None else divisor * value
            self._all_below(node, divisor, depth, name.startswith("Mul"))
        else:
            before, odd = len(self.paths), self.odd
            self._all_below(node, divisor, depth, False)
            reached = [path for path in self.paths[before:] if path.kind != "none"]
            if reached or self.odd != odd or self._follows(node):
                self.odd = self.odd or "the loss is no sum or mean over the samples (%s)" % name.rstrip("0123456789")

    def _all_below(self, node, divisor, depth, once):
        reached = 0
        for below, _ in node.next_functions:
            if below is not None:
                before = len(self.paths)
                self._down(below, divisor, depth + 1)
                reached += any(path.kind != "none" for path in self.paths[before:])
        if once and reached > 1:
            self.odd = self.odd or "the loss is a product of two that both hang on the samples"

    def _follows(self, node):
        """Tell whether what lies below a node has an axis that may hold the samples."""
        shapes = [_shape_of(below) for below, _ in node.next_functions if below is not None]
        sizes = getattr(node, "_saved_self_sym_sizes", None)
        if sizes is not None:
            shapes.append([int(n) for n in sizes])
        return any(n and n % self.size == 0 for shape in shapes for n in shape)

    @property
    def guess(self):
        """The rule, as far as one chunk tells it."""
        for path in self.paths:
            if path.kind == "mean":
                return "samples"
            if path.kind == "sum":
                by_size = path.divisor is not None and path.divisor % self.size == 0
                return "samples" if by_size else "sum"
        return "samples"


def _shape_of(node):
    try:
        return [int(n) for n in node._input_metadata[0].shape]
    except Exception:  # PyTorch before 2.3, and nodes of the user's own
        return next((list(shape) for shape in _saved_shapes(node)), [])


def _saved_shapes(node):
    """Of what a node keeps for its backward: its result first, which has the shape that is asked for."""
    for name in sorted((name for name in dir(node) if name.startswith("_saved_")), key=lambda one: "result" not in one):
        try:
            kept = getattr(node, name)
        except RuntimeError:  # it has been let go, or was changed in place
            continue
        if hasattr(kept, "shape"):
            yield tuple(kept.shape)
        elif name.endswith("_sizes"):
            yield tuple(int(n) for n in kept)


def _below(node):
    return next((type(below).__name__ for below, _ in node.next_functions if below is not None), "")


def _reduced(node, divisor):
    below = node.next_functions[0][0]
    then = _reduced(below, divisor) if _below(node).startswith(_REDUCE) else None
    return Path("mean" if type(node).__name__.startswith("Mean") else "sum", _numbers_below(node), divisor, then)


def _numbers_below(node):
    """How many numbers are reduced there."""
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    below = next((below for below, _ in node.next_functions if below is not None), None)
    shape = [int(n) for n in sizes] if sizes is not None else _shape_of(below) if below is not None else []
    found = 1
    for n in shape:
        found *= n
    return found if shape else None


def _inside_cut(node):
    """The graph of a loss that a model gave, where the model's call has been cut out."""
    _inputs, outputs = getattr(getattr(node, "call", None), "kept", None) or ((), ())
    for output in outputs:
        if output.grad_fn is not None and output.numel() == 1:
            return output.grad_fn
    return None


def _shapes_of(root):
    found, seen, waiting = [], {root}, [root]
    while waiting and len(found) < _MAX_NODES:
        node = waiting.pop(0)
        found.append(_shape_of(node))
        if not hasattr(node, "_input_metadata"):
            found += [list(shape) for shape in _saved_shapes(node)]
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return found


# --- What a chunk's gradient counts for in the full batch's, by how the loss is made up
# Its share of the samples for a mean, all of it for a sum, its share of the labels for a mean over labels. Two chunks
# of different sizes tell what follows the batch and what does not, and whether samples are compared with each other:
# a tensor that grows along two axes.

_IGNORED = -100


def settle(torch, one, other, leaves, axes, bounds):
    """The rules that are true of a loss in two chunks of different sizes; None where the two tell nothing.

    Raises where there is none. `bounds` are the rows of the two chunks in the batch that the leaves are of.
    """
    for reading in (one, other):
        if reading.odd:
            raise Unsplittable(reading.odd)
    if _compares(one, other):
        raise Unsplittable("the loss compares the samples of a batch with each other")
    if one.size == other.size or len(one.paths) != len(other.paths):
        return None
    rules, alone = None, False
    for first, second in zip(one.paths, other.paths):  # noqa: B905
        while first.then is not None and second.then is not None and first.numbers == second.numbers:
            first, second = first.then, second.then
        if first.kind == "none" or (first.numbers is not None and first.numbers == second.numbers):
            alone = True
        else:
            found = _rules_of(torch, first, second, (one.size, other.size), leaves, axes, bounds)
            rules = found if rules is None else [rule for rule in rules if rule in found]
    if rules is None:
        return ["samples"]
    if not rules:
        raise Unsplittable("the loss adds sums and means over the samples")
    if rules == ["sum"] and alone:
        raise Unsplittable("the loss adds a term of its own to a sum over the samples")
    return [rule for rule in rules if rule != "sum" or not alone]


def _rules_of(torch, first, second, sizes, leaves, axes, bounds):
    """Those that are true of one path, the likeliest first: two chunks may be alike in more than one way."""
    a, b = first.divisor, second.divisor
    if a is None or b is None:
        return ["samples" if first.kind == "mean" else "sum"]
    found: "list" = ["samples"] if a * sizes[1] == b * sizes[0] else []
    if first.kind == "sum" and a == b:
        found.append("sum")
    for n, (leaf, axis) in enumerate(zip(leaves, axes)):  # noqa: B905
        if axis == 0 and isinstance(leaf, torch.Tensor):
            for how in ("labels", "shifted", "marks"):
                counts = counts_of(torch, leaf, how)
                if counts is not None and [float(counts[x:y].sum()) for x, y in bounds] == [a, b]:
                    found.append((how, n))
    if not found:
        raise Unsplittable("the loss is divided by a number that is not found in the batch")
    return found


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
    """What the gradient of a chunk counts for in the full batch's."""
    if rule == "sum":
        return 1.0
    if rule != "samples":
        counts = counts_of(torch, leaves[rule[1]], rule[0])
        total = float(counts.sum())
        if total:
            return float(counts[begin:end].sum()) / total
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


# --- The backward of a chunk of a batch: it begins with what the chunk counts for, in place of one


class ScaledBackward:
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
                return inner(tensors, grad_tensors, *args, **kwargs)
            self.busy = True
            try:
                try:
                    grad_tensors = self._scaled(tensors, grad_tensors)
                except Exception as error:
                    self.guard.caught("backward", error)
                return inner(tensors, grad_tensors, *args, **kwargs)
            finally:
                self.busy = False
                self.guard(split.once.gathered_by)(split.now)

        autograd.backward = backward

    def _scaled(self, tensors, given):
        """The gradients to begin with, each times what the chunk counts for."""
        split = self.split
        for current in split.drawn:
            current.profile.trained = True
            current.chunks_learnt += 1
        split.drawn = []
        current = split.now
        if current is None or current.batch is None:
            return given
        roots = [tensors] if isinstance(tensors, self.torch.Tensor) else list(tensors)
        given = [given] if given is None or isinstance(given, self.torch.Tensor) else list(given)
        given += [None] * (len(roots) - len(given))
        rule = "samples"
        try:
            split.once.before_backward(current)
            rule = current.profile.rule(current, split.backwards, roots[0])
        except Unsplittable as error:
            split.cannot(current.profile, str(error))
        split.backwards += 1
        weight = current.profile.share(current, rule)
        return [self._times(root, one, weight) for root, one in zip(roots, given)]  # noqa: B905

    def _times(self, root, given, weight):
        if given is not None:
            return given * weight
        return self.torch.full_like(root, weight) if root.numel() == 1 else None
