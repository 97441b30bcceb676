"""cuDNN's recurrent layers on fake tensors, which PyTorch can't run there: their results by shape, and what they keep.

The layer keeps, for backward, its gates and states at every position: more than all that it gives back.
"""

from __future__ import annotations

from typing import Any

# mode -> what each layer keeps of a cell at every position: gates, cell states, and what a GRU resets. Every layer but
# the last keeps its output, too. As measured with cuDNN 9.
_KEPT = {0: 1, 1: 1, 2: 5, 3: 6}


def forward(torch: Any, args: Any) -> tuple[Any, ...]:
    """What `_cudnn_rnn` gives: output, last states, what it keeps, and its weights in one block."""
    source, weights, _stride, block, hx, cx, mode, hidden, wide_out, layers, batch_first, _dropout, train = args[:13]
    ways = 2 if args[13] else 1
    packed = list(args[14])
    out = wide_out or hidden
    if packed:
        batch, shape, positions = packed[0], (sum(packed), out * ways), sum(packed)
    else:
        batch = source.shape[0 if batch_first else 1]
        shape = (*source.shape[:2], out * ways)
        positions = source.shape[0] * source.shape[1]
    cells = layers * _KEPT.get(int(mode), 6) + layers - 1
    kept = cells * ways * positions * hidden * source.element_size() if train else 0
    states = source.new_empty((layers * ways, batch, hidden)) if cx is not None else source.new_empty((0,))
    if block is None:
        block = source.new_empty((sum(weight.numel() for weight in weights),))
    return (
        source.new_empty(shape),
        hx.new_empty((layers * ways, batch, out)),
        states,
        source.new_empty((kept,), dtype=torch.uint8),
        block,
    )


def backward(args: Any) -> tuple[Any, ...]:
    """What `_cudnn_rnn_backward` gives: a gradient for the input, the first states and every weight."""
    source, weights, _stride, block, hx, cx = args[:6]
    sizes = [weight.numel() for weight in weights]
    flat = block.new_empty((max(block.numel(), sum(sizes)),))  # one block, as its weights are
    parts = flat[: sum(sizes)].split(sizes)
    gradients = [part.view(weight.shape) for part, weight in zip(parts, weights)]
    states = cx.new_empty(cx.shape) if cx is not None else source.new_empty((0,))
    return source.new_empty(source.shape), hx.new_empty(hx.shape), states, gradients
