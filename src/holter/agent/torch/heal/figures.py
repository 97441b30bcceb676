"""Which losses and figures of a model's own add up over chunks whatever its numbers are, by what they are made of.

While the proof runs two samples, and then one of them, what is made of the samples is noted. A tensor that has the same
shape for one as for two is a figure of the whole batch. Where such figures are multiplied by each other, or bent, that
two samples add up says nothing of others: both may lie on the same side of a threshold.
"""

import weakref
from typing import NamedTuple

from ...heal.leaves import take_out
from . import by_sample

_BENT = frozenset(("max", "min", "amax", "amin", "norm", "std", "var", "median", "logsumexp", "prod", "vector_norm"))
_KEPT = by_sample.LINEAR | {
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
        weighs = name in by_sample.OF_LABELS and self.is_tensor(weight)
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
            rules.append(self._rule(one, rules) if one.shape == other.shape and one.name else by_sample.SAMPLES)
        return [n for n in outputs if n is not None and rules[n] == by_sample.OTHER]

    def _rule(self, made, rules):
        given = [None if n is None else rules[n] for n in made.sources]
        figures = [one for one in given if one not in (None, by_sample.SAMPLES)]
        if figures:
            if by_sample.SAMPLES in given or by_sample.OTHER in figures:
                return by_sample.OTHER
            name = made.name.removeprefix("r") if made.name in ("radd", "rsub", "rmul") else made.name
            first = bool(made.args) and made.args[0] and given[0] is not None
            return by_sample.of_figures(name, figures, first, name in _KEPT)
        if made.name in by_sample.OF_LABELS:
            labels = made.sources[1] if len(made.sources) > 1 else None
            known = labels is not None and (self.made[labels].floating or self._is_given(labels))
            return by_sample.SHOWN if known and not made.weighs else by_sample.OTHER
        if made.name in _BENT or (made.name in _LOSSES and len(set(made.dims)) > 1):
            return by_sample.OTHER
        return by_sample.SHOWN

    def _is_given(self, number):
        """Tell whether labels are those that the model was given: how many of these count is known of each batch."""
        one = self.made[number]
        if not one.name:
            return True
        sources = [n for n in one.sources if n is not None]
        return one.name in _LABELS_KEPT and len(sources) == 1 and self._is_given(sources[0])
