"""What PyTorch's own helpers tell at no cost: the loss before it is scaled, and the norm that clipping computes."""

import functools


def patch(adapter):
    """Stand around `GradScaler.scale` and `clip_grad_norm_`."""
    torch = adapter.torch
    scaler_class = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    inner = scaler_class.scale

    @functools.wraps(inner)
    def scale(scaler, outputs):
        result = inner(scaler, outputs)
        adapter.guard(adapter.nan.scales)(scaler, outputs)
        adapter.unscaled = (result, outputs) if result is not outputs else None
        return result

    scaler_class.scale = scale
    clip_module = torch.nn.utils
    inner_clip = clip_module.clip_grad_norm_

    @functools.wraps(inner_clip)
    def clip_grad_norm_(*args, **kwargs):
        norm = inner_clip(*args, **kwargs)
        try:
            if norm.is_cpu:
                adapter.grad_norm = norm.item()
                adapter.nan.history.norms.append(adapter.grad_norm)
                adapter.known |= 2
                adapter.next_norm = adapter.beat.since + 10_000_000_000
        except Exception as error:
            adapter.guard.caught("clip_grad_norm_", error)
        return norm

    for holder in (clip_module, clip_module.clip_grad):
        if getattr(holder, "clip_grad_norm_", None) is inner_clip:
            holder.clip_grad_norm_ = clip_grad_norm_
