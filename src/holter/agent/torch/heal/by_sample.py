"""Which operations make each sample by itself, and which numbers add up over chunks (PyTorch).

What two samples show may be chance: both labels weigh the same, both losses lie on the same side of a threshold. So
only what adds up whatever the elements are is made chunk by chunk; the proof comes on top of that. It is asked of what
the script makes of outputs (`rule`), and of the losses and figures that a model makes itself (`Figures`).
"""

import functools
import weakref
from typing import NamedTuple

from ...heal.leaves import take_out

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
        return functools.reduce(_added, numbers if len(numbers) > 1 else [*numbers, MEAN])
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


# --- a model's own losses and figures ---------------------------------------------------------------------------
# While the proof runs two samples, and then one of them, what is made of the samples is noted. A tensor that has the
# same shape for one as for two is a figure of the whole batch. Where such figures are multiplied, or bent,
# that two samples add up says nothing of others.

_BENT = frozenset(("max", "min", "amax", "amin", "norm", "std", "var", "median", "logsumexp", "prod", "vector_norm"))
_KEPT = LINEAR | {
    "stack", "cat", "expand", "unsqueeze", "flatten", "getitem", "get", "cpu", "cuda", "dropout", "permute",
    "transpose", "T",
}  # fmt: skip
_LABELS_KEPT = _KEPT | {"long", "int", "pad", "roll", "chunk", "split", "ravel", "movedim"}
_LOSSES = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss"))


class Made(NamedTuple):
    """A tensor that was made of samples."""

    name: str
    args: tuple
    dims: tuple  # of each tensor that it was made of
    sources: tuple  # the numbers of those that were made of samples, None for others
    weighs: bool  # it is a loss that weighs classes
    shape: tuple
    floating: bool


class Figures:
    """What one run made of its samples."""

    def __init__(self, is_tensor, samples):
        self.is_tensor, self.made, self.known = is_tensor, [], {}
        for tensor in samples:
            self._note(tensor, Made("", (), (), (), False, tuple(tensor.shape), tensor.is_floating_point()))

    def _note(self, tensor, made):
        self.known[id(tensor)] = weakref.ref(tensor), len(self.made)
        self.made.append(made)

    def number(self, tensor):
        """Which of what was made this is; None for what was not made of samples."""
        ref, number = self.known.get(id(tensor), (lambda: None, None))
        return number if ref() is tensor else None

    def take_down(self, func, args, kwargs, found):
        name = getattr(func, "__name__", "").strip("_")
        leaves, results = [], []
        take_out((args, kwargs), self.is_tensor, leaves)
        sources = tuple(self.number(leaf) for leaf in leaves)
        if all(one is None for one in sources) or name.startswith("new_") or name.endswith("_like"):
            return
        take_out(found, self.is_tensor, results)
        weight = kwargs.get("weight", args[2] if len(args) > 2 else None)
        weighs = name in OF_LABELS and self.is_tensor(weight)
        for one in results:
            plain = tuple(id(arg) == id(leaves[0]) for arg in args[:1])
            dims = tuple(leaf.dim() for leaf in leaves)
            self._note(one, Made(name, plain, dims, sources, weighs, tuple(one.shape), one.is_floating_point()))

    def bent(self, single, outputs):
        """Which of these outputs are figures that need not add up; `single` is what the run of one sample made."""
        if [one.name for one in self.made] != [one.name for one in single.made]:
            return []
        rules = []
        for one, other in zip(self.made, single.made):  # noqa: B905
            rules.append(self._rule(one, rules) if one.shape == other.shape and one.name else SAMPLES)
        return [n for n in outputs if n is not None and rules[n] == OTHER]

    def _rule(self, made, rules):
        given = [None if n is None else rules[n] for n in made.sources]
        figures = [one for one in given if one not in (None, SAMPLES)]
        if figures:
            if SAMPLES in given or OTHER in figures:
                return OTHER
            name = made.name.removeprefix("r") if made.name in ("radd", "rsub", "rmul") else made.name
            first = bool(made.args) and made.args[0] and given[0] is not None
            return of_figures(name, figures, first, name in _KEPT)
        if made.name in OF_LABELS:
            labels = made.sources[1] if len(made.sources) > 1 else None
            known = labels is not None and (self.made[labels].floating or self._is_given(labels))
            return SHOWN if known and not made.weighs else OTHER
        if made.name in _BENT or (made.name in _LOSSES and len(set(made.dims)) > 1):
            return OTHER
        return SHOWN

    def _is_given(self, number):
        """Tell whether labels are those that the model was given: how many of these count is known of each batch."""
        one = self.made[number]
        if not one.name:
            return True
        sources = [n for n in one.sources if n is not None]
        return one.name in _LABELS_KEPT and len(sources) == 1 and self._is_given(sources[0])
