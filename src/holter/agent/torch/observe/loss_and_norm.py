"""What PyTorch's own helpers tell at no cost: the loss before it is scaled, and the norm that clipping computes."""

import functools
import weakref

from ...observe.wrap import drop_own_frame, uncounted


def patch(adapter):
    """Stand around `GradScaler.scale` and `clip_grad_norm_`."""
    torch, unseen, is_compiling = adapter.torch, adapter.unseen, adapter.is_compiling
    scaler_class = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    inner = scaler_class.scale

    @functools.wraps(inner)
    def scale(scaler, outputs):
        try:
            result = inner(scaler, outputs)
        except BaseException as error:
            drop_own_frame(error)
            raise
        if not is_compiling():
            guarded(scaler, outputs, result)
        return result

    @adapter.guard
    def guarded(scaler, outputs, result):
        if not unseen.alone() or not unseen.is_plain(outputs):
            return  # several at once, or none of ours to look at
        adapter.nan.scales(scaler, outputs)
        adapter.unscaled = (weakref.ref(result), weakref.ref(outputs)) if result is not outputs else None

    scaler_class.scale = uncounted(scale)
    clip_module = torch.nn.utils
    inner_clip = clip_module.clip_grad_norm_

    @functools.wraps(inner_clip)
    def clip_grad_norm_(*args, **kwargs):
        try:
            norm = inner_clip(*args, **kwargs)
        except BaseException as error:
            drop_own_frame(error)
            raise
        if is_compiling():
            return norm
        try:
            number = unseen.number(norm) if unseen.alone() and unseen.is_plain(norm) else None
            if number is not None:
                adapter.grad_norm = number
                adapter.nan.history.norms.append(number)
                adapter.known |= 2
                adapter.next_norm = adapter.beat.since + 10_000_000_000
        except Exception as error:
            adapter.guard.caught("clip_grad_norm_", error)
        return norm

    uncounted(clip_grad_norm_)
    for holder in (clip_module, clip_module.clip_grad):
        if getattr(holder, "clip_grad_norm_", None) is inner_clip:
            holder.clip_grad_norm_ = clip_grad_norm_
