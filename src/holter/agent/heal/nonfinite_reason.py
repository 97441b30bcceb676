"""Why a loss or gradient is non-finite, as far as the process itself can tell in the moment, and the words for it.

The diagnosis says more, later, from the whole record. Here only what decides about the next act is asked: is it the
batch, did the loss run away, or is the precision at its end?
"""

_HALF = "float16"


def ran_away(losses, lowest=None):
    """The usual loss and the highest before it stopped being one, where it grew without end; else None."""
    sizes = [abs(loss) for loss in losses]
    if len(sizes) < 4:
        return None
    first = sorted(sizes[: max(1, len(sizes) // 4)])
    usual = max(first[len(first) // 2], 1e-12)
    if lowest is not None:  # the last losses alone may all lie on its way up
        usual = min(usual, max(abs(lowest), 1e-12))
    if sizes[-1] < 10 * usual:
        return None  # a spike that is over
    tail = sizes[-9:]
    rising = sum(later > 1.1 * now and later > 2 * usual for now, later in zip(tail, tail[1:]))  # noqa: B905, RUF007
    times = max(tail) / usual
    if rising >= 3 or (times >= 30 and rising >= 2) or times >= 1e3:
        return usual, max(tail)
    return None


def is_batch(inputs):
    """Tell whether a tensor of the batch itself holds what is non-finite."""
    return bool(inputs) and inputs.get("bad") in ("nan", "inf")


def is_half(seen):
    """Tell whether the step was computed in half precision, whose largest number is 65,504."""
    params = seen.get("params") or {}
    places = (seen.get("autocast"), seen.get("dtype"), seen.get("op_dtype"), params.get("dtype"))
    return _HALF in places and seen.get("finite_in_float32") is not False


def of_batch(inputs):
    """What is wrong with the batch, in words."""
    name, bad = inputs.get("name"), "NaN" if inputs.get("bad") == "nan" else "an infinity"
    count, sample, index = inputs.get("samples") or 1, inputs.get("sample"), inputs.get("index")
    where = ""
    if inputs.get("feature") is not None:
        where = " in feature %d of every sample" % inputs["feature"]
    elif index is not None:
        where = " in sample %d of the dataset" % index
    elif sample is not None:
        where = " in sample %d of the batch" % sample
    more = " and %d more" % (count - 1) if where and count > 1 and "feature" not in inputs else ""
    return "%s holds %s%s%s" % ("`%s`" % name if name != "the batch" else name, bad, where, more)


def of_operation(seen):
    """The operation that the look has found, in words; empty where it has found none."""
    if not seen.get("op"):
        return ""
    at = " at line %d" % seen["line"] if seen.get("line") else ""
    if seen.get("what") == "gradient":
        return "the gradient of `%s`%s is not finite" % (seen["op"], at)
    return "`%s`%s gives a non-finite value from finite ones" % (seen["op"], at)


def cure(seen, grown, rate):
    """What the user may do, where acting on single updates does not help."""
    if grown is not None:
        of = "" if rate is None else " of %.3g" % rate
        return "the loss ran away from %.3g to %.3g: lower the learning rate%s, or clip the gradients" % (*grown, of)
    if is_half(seen):
        return "numbers go beyond float16, whose largest is 65,504: train in bfloat16"
    operation = of_operation(seen)
    if operation:
        return operation + ": keep its input away from the edge"
    return "no batch is to blame: lower the learning rate or clip the gradients"


# --- How many updates may be left out: where it is more than about one in five, no batch is to blame

_MAX_SKIPPED = 32  # beyond one in five


class Patience:
    """Spent with each update that is left out, regained with those that are made."""

    def __init__(self):
        self.rest, self.last = _MAX_SKIPPED, 0

    def spend(self, step, new=1):
        """At this step so many were left out; False when it is over."""
        made = max(0, step - self.last - new)
        self.rest, self.last = min(_MAX_SKIPPED, self.rest + made / 4) - new, step
        return self.rest >= 0


# --- Whether a loss is about as low as it has been: a state is only worth keeping then, and not on its way up

_LEVEL_LOSSES = 16  # whose median is the level


class Level:
    """Follows the losses of one training."""

    def __init__(self):
        self.first = self.lowest = None

    def holds(self, losses):
        """Tell whether the last losses are no higher than twice the lowest level, and the way down from the first."""
        last = sorted(losses[-_LEVEL_LOSSES:])
        if not last:
            return self.first is None
        level = last[len(last) // 2]
        if self.first is None:
            self.first = self.lowest = level
        self.lowest = min(self.lowest, level)
        return level <= self.lowest + abs(self.lowest) + abs(self.first - self.lowest)
