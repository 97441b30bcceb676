"""Which operations on outputs make each sample by itself, and which numbers add up over chunks (PyTorch).

What two samples show may be chance: both labels weigh the same, both losses lie on the same side of a threshold. So
only what adds up whatever the elements are is made chunk by chunk; the proof comes on top of that.
"""

import functools

SAMPLES = "samples"  # not a number, but an entry, or several, for each sample
SUM, MEAN = "sum", "mean"
AVERAGE = "average"  # a mean, of which the proof shows whether samples or labels are counted
SHOWN = "shown"  # what the proof shows
OTHER = "other"  # a number that is made of the full batch's numbers

OF_LABELS = frozenset(("cross_entropy", "nll_loss"))
_ADDED = frozenset(("add", "sub", "rsub", "iadd", "isub"))
_MULTIPLIED = frozenset(("mul", "rmul", "imul"))
_DIVIDED = frozenset(("div", "truediv", "true_divide", "idiv", "itruediv"))
LINEAR = frozenset((
    "neg", "float", "half", "bfloat16", "double", "to", "type_as", "detach", "contiguous", "clone", "view", "reshape",
    "squeeze", "mean", "sum",
))  # fmt: skip


def rule(name, args, kwargs, given, size, made):
    """What a result is; None where it is of no kind that is made chunk by chunk.

    `given` are the tensors that the operation takes, each with what it is: None for one of the script's own.
    """
    name = name.strip("_")
    numbers = [one for _, one in given if one not in (None, SAMPLES)]
    if numbers:
        if made.dim() or any(leaf.dim() for leaf, _ in given):
            return None
        return _of_numbers(name.removeprefix("r") if name in ("radd", "rsub") else name, args, kwargs, given, made)
    if name not in OF_LABELS and not _alike(given, size):
        return None
    return SAMPLES if made.dim() else _reduced(name, kwargs, given)


def has_wrong_labels(name, args, kwargs, of_own_kind):
    """Tell whether a loss will say that a label is no class: on a CPU it does so at once, where it may be caught."""
    if name not in OF_LABELS or of_own_kind(args[1]) or not args[1].is_cpu or args[1].is_floating_point():
        return False
    counted = args[1][args[1] != kwargs.get("ignore_index", -100)]
    return (
        bool(counted.numel()) and not 0 <= int(counted.min()) <= int(counted.max()) < args[0].shape[args[0].dim() > 1]
    )


def _alike(given, size):
    """Tell whether all that holds samples has as many axes: otherwise each would meet all others."""
    return len({leaf.dim() for leaf, one in given if one is not None or (leaf.dim() and not leaf.shape[0] % size)}) == 1


def _reduced(name, kwargs, given):
    if name in (SUM, MEAN):
        return name
    if "reduction" not in kwargs or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
        return None
    labels = name in OF_LABELS and not given[1][0].is_floating_point()
    # A weight for each class: what a mean is divided by hangs on the labels; and so it does on those that are left out.
    if labels and (kwargs.get("weight") is not None or given[1][1] is not None):
        return None
    return SUM if kwargs["reduction"] == "sum" else AVERAGE if labels else MEAN


def _of_numbers(name, args, kwargs, given, made):
    numbers = [one for _, one in given if one is not None]
    if OTHER in numbers or (not made.is_floating_point() and any(leaf.is_floating_point() for leaf, _ in given)):
        return OTHER
    if kwargs.get("rounding_mode") is not None:
        return OTHER
    first = bool(args) and args[0] is given[0][0] and given[0][1] is not None
    return of_figures(name, numbers, first, name in LINEAR)


def of_figures(name, numbers, first, linear):
    """What is made of these, the rest being constants; `first` tells whether the first operand is one of them."""
    if name in _ADDED:
        return _added(*numbers) if len(numbers) == 2 else _added(*numbers, MEAN)
    if len(numbers) > 1:
        return functools.reduce(_added, numbers) if linear else OTHER
    if name in _MULTIPLIED or (name in _DIVIDED and first):
        return numbers[0]
    return numbers[0] if linear else OTHER


def _added(one, other):
    """A constant counts as a mean: it is the same for every chunk."""
    if SUM in (one, other):
        return SUM if {one, other} <= {SUM, SHOWN} else OTHER
    return one if one == other else AVERAGE
