"""What CUDA kernels take for themselves while they run: no operation's result shows it.

Only what grows with the batch is here, by the kernels' own sources; what does not is measured, or taken as
`FIXED` where there is no device to measure on.
"""

from __future__ import annotations

from typing import Any

# cuBLAS keeps a workspace for each thread that calls it: forward's and backward's.
BLAS, BLAS_HOPPER = 2 * (4 << 20) + 8 * (16 << 10), 32 << 20
FIXED = 1 << 20  # and what is small
CONTEXT = 500 << 20


def unseen(func: Any, args: Any, _out: Any) -> int:
    """Bytes that the kernel of an operation takes and gives back."""
    name = func.__name__.split(".")[0] if hasattr(func, "__name__") else str(func)
    if name == "embedding_dense_backward":
        return 4 * 8 * int(args[1].numel())  # indices, sorted
    if name in ("index_put_", "_index_put_impl_", "_unsafe_index_put"):
        if len(args) > 3 and args[3]:
            return 5 * 8 * max((int(i.numel()) for i in args[1] if i is not None), default=0)
        return 0
    if "flash_attention_backward" in name:
        batch, heads, long, wide = (int(n) for n in args[1].shape)  # query
        rounded, padded = -(-long // 128) * 128, -(-wide // 32) * 32
        return 4 * batch * heads * rounded * (padded + 1)  # the gradient of the query is summed in float32
    if "efficient_attention_backward" in name:
        batch, heads, long, wide = (int(n) for n in args[1].shape)
        return 4 * batch * heads * long + (2 * 4 * batch * heads * long * wide if args[1].element_size() == 2 else 0)
    return 0
