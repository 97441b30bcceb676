"""Mathematical functions at the edge of where they are defined, told from the values that went in.

`forward` says why a function of finite values gave something that is not; `backward` says where its slope is not.
"""

_DIVISIONS = frozenset(("div", "truediv", "true_divide", "divide", "rdiv", "rtruediv", "floor_divide", "itruediv"))
_LOGS = frozenset(("log", "log2", "log10"))
_EXPS = frozenset(("exp", "exp2", "expm1", "sinh", "cosh"))
_MEANS = frozenset(("mean", "nanmean"))
_DEVIATIONS = frozenset(("std", "var", "std_mean", "var_mean"))
_SOFTMAXES = frozenset(("softmax", "log_softmax", "logsumexp", "cross_entropy"))
_LOSSES = frozenset(("cross_entropy", "nll_loss", "nll_loss2d", "nll_loss_nd"))
# They put constants where they are told to: an infinity that comes out was asked for.
PLACING = frozenset(
    ("masked_fill", "where", "full", "full_like", "new_full", "fill", "triu", "tril", "zeros", "zeros_like", "copy",
     "masked_scatter", "scatter", "setitem", "index_fill", "index_put", "tensor", "as_tensor", "cat", "stack", "to",
     "clone", "view", "reshape", "expand", "detach", "pad", "repeat", "unsqueeze", "squeeze", "float", "contiguous",
     "transpose", "permute", "getitem", "bernoulli", "t", "select", "slice", "narrow", "unbind", "index")
)  # fmt: skip


def plain(name):
    """A function's name without what only says how it is called: `__truediv__`, `log_`, `LogBackward0`."""
    name = name.strip("_").rstrip("0123456789") if "Backward" not in name else name
    if "Backward" in name:
        name = _snake(name.split("Backward")[0])
    return name.rstrip("_")


def _snake(name):
    out = []
    for at, letter in enumerate(name.lstrip("_")):
        if letter.isupper() and at:
            out.append("_")
        out.append(letter.lower())
    return "".join(out)


def forward(name, a, b=None, out=None):
    """The edge at which a function gave what is non-finite, in words; empty where there is none."""
    if name in _LOGS:
        return _first((a == 0, "%s of 0" % name), (a < 0, "%s of a negative number" % name))
    if name == "log1p":
        return _first((a == -1, "log1p of -1"), (a < -1, "log1p of a number below -1"))
    if name == "sqrt":
        return _first((a < 0, "square root of a negative number"))
    if name in ("rsqrt", "reciprocal"):
        return _first((a == 0, "division by zero"), (a < 0, "square root of a negative number"))
    if name in _DIVISIONS and b is not None:
        if name in ("rdiv", "rtruediv"):
            a, b = b, a
        if _any((b == 0) & (a == 0)):
            return "0 / 0"
        return _first((b == 0, "division by zero"))
    if name in ("pow", "rpow", "float_power") and b is not None:
        if name == "rpow":
            a, b = b, a
        return _first(
            ((a == 0) & (b < 0), "0 to a negative power"),
            ((a < 0) & (b != b // 1), "a negative number to a fractional power"),
            (abs(a) > 1, "a power that overflows"),
        )
    if name in _EXPS:
        return _first((a > 0, "%s overflows" % name))
    if name in ("acos", "asin", "arccos", "arcsin"):
        return _first((abs(a) > 1, "%s outside of [-1, 1]" % name))
    if name in ("atanh", "arctanh"):
        return _first((abs(a) >= 1, "atanh at or beyond 1"))
    if name == "acosh":
        return _first((a < 1, "acosh of a number below 1"))
    if name == "logit":
        return _first(((a <= 0) | (a >= 1), "logit of 0 or 1"))
    if name in ("lgamma", "digamma", "polygamma"):
        return _first((a <= 0, "%s at or below 0" % name))
    if name in _MEANS and not a.numel():
        return "mean of nothing"
    if name in _DEVIATIONS and (out is None or a.numel() <= _size(out)):
        return "standard deviation of a single value"
    if name in _SOFTMAXES and _any((a == float("-inf")).all(-1)):
        return "softmax over a row that is masked whole"
    if name in _LOSSES and b is not None and not b.is_floating_point() and _any(b < 0) and not _any(b >= 0):
        return "mean over targets that are all ignored"
    return ""


def backward(name, a, b=None):
    """The edge at which a function's slope is infinite although its value is finite."""
    if name == "sqrt":
        return _first((a == 0, "slope of sqrt at 0"))
    if name == "pow" and b is not None:
        return _first(((a == 0) & (b < 1) & (b != 0), "slope of a fractional power at 0"))
    if name in ("acos", "asin", "arccos", "arcsin"):
        return _first((abs(a) == 1, "slope of %s at 1 or -1" % name))
    if name == "atan2" and b is not None:
        return _first(((a == 0) & (b == 0), "slope of atan2 at (0, 0)"))
    return ""


# Functions whose slope is infinite or undefined somewhere: what a graph holds when a gradient is non-finite.
SLOPES = frozenset(("sqrt", "pow", "acos", "asin", "atan2", "svd", "linalg_svd", "eigh", "linalg_eigh", "rsqrt"))
# With a `where` or a mask behind them their slope still counts, where their own value was not finite.
MASKS = frozenset(("where", "masked_fill", "mul"))
HIDDEN = frozenset(("log", "log2", "log10", "div", "reciprocal", "exp", "log1p"))


def _first(*cases):
    for wrong, words in cases:
        if _any(wrong):
            return words
    return ""


def _any(wrong):
    return bool(wrong.any()) if hasattr(wrong, "any") else bool(wrong)


def _size(out):
    if isinstance(out, (tuple, list)):
        out = out[0]
    return out.numel()
