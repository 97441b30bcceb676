"""Split the loss (PyTorch): a cross-entropy over many classes that does not fit is computed in parts. Keeps: exact.

Over a vocabulary the loss takes several times the memory of the model's output. Each part's gradient is computed with
its loss and kept in the output's own precision, so that nothing is computed twice: in float16 before it is divided by
the number of samples, which would leave nothing of it before the loss's scale comes.
"""

import functools

from ...heal.out_of_memory import is_oom, oom_error

_LARGE = 1 << 20  # elements: below this a loss is never the reason
_SPARE = 0.9  # of the room: where a loss takes less it is left alone, since a backward that fails can't be undone
_PART = 0.5  # of the room that is left, for what one part takes
_MOST, _MOST_CPU = 1 << 27, 1 << 25  # elements of a part: more are no faster


class LossSplit:
    """Stands around `cross_entropy`."""

    def __init__(self, split):
        self.split, self.torch = split, split.torch
        self.told = False
        self.too_many = float("inf")  # elements of a part that was seen not to fit

    def patch(self):
        functional = self.torch.nn.functional
        inner = functional.cross_entropy
        is_compiling, grad_enabled = self.split.is_compiling, self.torch.is_grad_enabled

        @functools.wraps(inner)
        def cross_entropy(input, target, *args, **kwargs):  # noqa: A002
            if self.split.inside or is_compiling() or not grad_enabled() or input.numel() < _LARGE:
                return inner(input, target, *args, **kwargs)
            return self._loss(inner, input, target, args, kwargs)

        functional.cross_entropy = cross_entropy

    def _loss(self, inner, logits, target, args, kwargs):
        how = _Options(*args, **kwargs)
        if not how.known or not logits.requires_grad or target.requires_grad or logits.dim() < 2:
            return inner(logits, target, *args, **kwargs)
        room = self.split.room(logits.device)
        if _need(self.torch, how, logits, target) < _SPARE * room.left():
            try:
                return inner(logits, target, *args, **kwargs)
            except Exception as error:
                if not is_oom(error):
                    raise
            room.ran_out()
        return _class(self.torch).apply(self, inner, how, room, logits, target)

    def tell(self, logits):
        if self.told:
            return
        self.told = True
        text = "the loss over an output of %s did not fit: it is computed in parts" % "×".join(map(str, logits.shape))
        self.split.agent.say(
            "intervention", act="split-loss", keeps="exact", step=self.split.agent.beat.steps + 1, text=text, because=""
        )


class _Options:
    """The arguments of `cross_entropy` beside its tensors."""

    def __init__(
        self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
    ):
        self.weight, self.ignore_index, self.reduction = weight, ignore_index, reduction
        self.smoothing = label_smoothing
        plain = size_average is None and reduce is None and reduction in ("mean", "sum")
        self.known = plain and not (weight is not None and weight.requires_grad)

    def divisor(self, torch, logits, target):
        """What the sum over all samples is divided by."""
        if self.reduction == "sum":
            return torch.ones((), device=logits.device)
        if target.is_floating_point():
            return torch.tensor(logits.numel() / logits.shape[1], device=logits.device)
        counted = target != self.ignore_index
        if self.weight is None:
            return counted.sum().float()
        return (self.weight[target.clamp(min=0)] * counted).sum()

    def part(self, inner, logits, target):
        return inner(
            logits, target, self.weight, ignore_index=self.ignore_index, reduction="sum", label_smoothing=self.smoothing
        )


@functools.lru_cache(maxsize=1)
def _class(torch):
    class LossInParts(torch.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx, reflex, inner, how, room, logits, target):
            ctx.save_for_backward(logits, target)
            ctx.reflex, ctx.inner, ctx.how, ctx.room = reflex, inner, how, room
            try:
                with room.wall:
                    loss, ctx.gradient, ctx.scale = _in_parts(torch, reflex, inner, how, room, logits, target)
            except Exception as error:
                if not room.wall.at() or not is_oom(error):
                    raise
                # It was our wall that it failed at: the kernel may allow it.
                loss, ctx.gradient, ctx.scale = _in_parts(torch, reflex, inner, how, room, logits, target)
            return loss

        @staticmethod
        def backward(ctx, given):
            logits, target = ctx.saved_tensors
            nothing = (None,) * 4
            if torch.is_grad_enabled():  # a graph of the backward is wanted
                loss = ctx.how.part(ctx.inner, logits, target) / ctx.how.divisor(torch, logits, target)
                return (*nothing, *torch.autograd.grad(loss, (logits,), given, create_graph=True), None)
            gradient, ctx.gradient = ctx.gradient, None
            if gradient is None:  # a second backward through the same graph
                _, gradient, _ = _in_parts(torch, ctx.reflex, ctx.inner, ctx.how, ctx.room, logits, target)
            return (*nothing, _times(torch, gradient, given / ctx.scale), None)

    return LossInParts


def _need(torch, how, logits, target):
    """What a loss takes: the logarithms and their gradient, in float32 under autocast, and the logits' gradient."""
    own = logits.element_size()
    asked = getattr(torch, "get_autocast_dtype", None)  # PyTorch before 2.4 asks for each device by a name of its own
    mixed = torch.is_autocast_enabled(logits.device.type) if asked is not None else True
    smooth = how.smoothing > 0 or target.is_floating_point()  # every class has a share in the loss of a sample
    return logits.numel() * ((3 if smooth else 2) * max(own, 4 if mixed else 0) + own)


def _in_parts(torch, reflex, inner, how, room, logits, target):
    """The loss and the gradient of the logits: all at once where that just fits, otherwise some rows at a time."""
    size, each = logits.shape[0], logits[0].numel()
    divisor = how.divisor(torch, logits, target)
    kind = torch.float64 if logits.dtype is torch.float64 else torch.float32
    scale = divisor.to(kind) if logits.dtype is torch.float16 else torch.ones_like(divisor, dtype=kind)
    share = scale / divisor
    need = _need(torch, how, logits, target)
    if need <= room.left() and logits.numel() < reflex.too_many:
        done = _part(torch, inner, how, logits, target, share)
        if done is not None:
            return done[0] / scale, done[1], scale
        room.ran_out()
        reflex.too_many = logits.numel()
    reflex.tell(logits)
    gradient = _room_for(torch, reflex, room, logits)
    total = torch.zeros((), device=logits.device, dtype=kind)
    most = min(_MOST_CPU if logits.device.type == "cpu" else _MOST, reflex.too_many / 2)
    rows = max(1, min(size, int(_PART * max(room.left(), 0) * size / need), int(most // each)))
    rows = -(-size // -(-size // rows))  # parts of one size
    begin = 0
    while begin < size:
        end = min(size, begin + rows)
        done = _part(torch, inner, how, logits[begin:end], target[begin:end], share)
        if done is None:
            room.ran_out()
            if not reflex.split.release():
                if rows == 1:
                    raise oom_error(torch, "out of memory in a loss of a single row")
                reflex.too_many = min(reflex.too_many, rows * each)
                rows //= 2
            continue
        loss, gradient[begin:end] = done
        total += loss
        done = loss = None
        begin = end
    return total / scale, gradient, scale


def _times(torch, gradient, factor):
    """The gradient times a number that only the device knows."""
    if gradient.is_cuda and gradient.dtype in (torch.float16, torch.float32):
        # Of all kernels the one that reads the number once, and not for each element: a quarter of the time.
        unscale = torch._amp_foreach_non_finite_check_and_unscale_
        unscale([gradient], torch.zeros((), device=gradient.device), factor.float())
        return gradient
    return gradient.mul_(factor)


def _room_for(torch, reflex, room, logits):
    try:
        return torch.empty_like(logits)
    except Exception as error:
        if not is_oom(error):
            raise
    room.ran_out()
    reflex.split.release()
    return torch.empty_like(logits)


def _part(torch, inner, how, logits, target, share):
    try:
        part = logits.detach().requires_grad_()
        with torch.enable_grad():
            loss = how.part(inner, part, target).to(share.dtype) * share
        (slope,) = torch.autograd.grad(loss, (part,))
        return loss.detach(), slope
    except Exception as error:
        if not is_oom(error):
            raise
    return None
