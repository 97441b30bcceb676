"""What `--heal=all` may change to keep numbers finite (PyTorch): a lower learning rate, bfloat16 for float16.

And whether an optimizer can be made to pass over a step at all.
"""

import functools


class Rate:
    """Lowers the rate for the length of each step only: a schedule that sets it anew has no hold on that."""

    def __init__(self):
        self.factor = 1.0
        self.lowered = []

    def halve(self, times):
        """Half the rate the first time, and twice as boldly each time that it was not enough."""
        self.factor *= 0.5**times

    def lower(self, optimizer):
        if self.lowered:
            self.give_back()  # a step that failed
        for group in optimizer.param_groups:
            rate = group.get("lr")
            if rate is not None:
                self.lowered.append((group, rate))
                group["lr"] = rate * self.factor

    def give_back(self):
        lowered, self.lowered = self.lowered, []
        for group, rate in lowered:
            group["lr"] = rate


_done = []


def bfloat_for_half(torch):
    """From here on, autocast computes in bfloat16 where it was asked for float16; False when that was done before."""
    if _done:
        return False
    cls = torch.autocast
    inner = cls.__enter__

    @functools.wraps(inner)
    def __enter__(context):  # noqa: N807
        if getattr(context, "fast_dtype", None) is torch.float16:
            context.fast_dtype = torch.bfloat16
        return inner(context)

    cls.__enter__ = __enter__
    _done.append(inner)
    return True


def passes_over_none(cls):
    """Tell whether the steps of this optimizer leave weights alone that have no gradient: PyTorch's own all do."""
    if cls.__module__.startswith("torch.optim"):
        return True
    import inspect

    try:
        source = inspect.getsource(inspect.unwrap(cls.step))
    except (OSError, TypeError):
        return False
    return any(words in source for words in ("is None", "is not None", "super().step"))
