"""How a loss comes about from the samples of a batch, read off its graph: a mean of them, a sum, or something else."""

_NODES = 4000
_LINEAR = (
    "Add", "Sub", "Neg", "Mul", "Div", "ToCopy", "View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Stack",
    "Cat", "Alias", "Clone", "Copy", "Expand", "Sum", "Mean", "Select", "Unbind",
)  # fmt: skip
_REDUCE = ("Sum", "Mean")
_DEEP = 150  # nodes: further down is no loss over samples, but a sum over the weights


class Path:
    """One way on which samples come into the loss: how they are reduced, how many numbers, and what divides them."""

    def __init__(self, kind, numbers, divisor, then=None):
        self.kind, self.numbers, self.divisor = kind, numbers, divisor
        self.then = then  # where it is reduced axis by axis: the one before


class Reading:
    """What the graph of one part's loss looks like."""

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
        if depth > _DEEP:
            return
        reduction = getattr(node, "_saved_reduction", None)
        how = getattr(node, "how", None)  # a cross-entropy that is computed in parts
        if how is not None and hasattr(how, "reduction"):
            reduction = {"mean": 1, "sum": 2}.get(how.reduction)
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
        """The rule, as far as one part tells it."""
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
    call = getattr(node, "call", None)
    kept = [outputs for _inputs, outputs in getattr(call, "kept", {}).values()]
    for outputs in (*kept, getattr(call, "plain", None) or ()):
        for output in outputs:
            if output.grad_fn is not None and output.numel() == 1:
                return output.grad_fn
    return None


def _shapes_of(root):
    found, seen, waiting = [], {root}, [root]
    while waiting and len(found) < _NODES:
        node = waiting.pop(0)
        found.append(_shape_of(node))
        if not hasattr(node, "_input_metadata"):
            found += [list(shape) for shape in _saved_shapes(node)]
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return found
