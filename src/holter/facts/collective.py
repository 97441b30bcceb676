"""What makes two calls of a collective fit together: a job's ranks must make the same ones in the same order."""

# Of these all ranks give tensors of the same size; of the others sizes may differ by design.
_SAME_SIZES = ("all_reduce", "allreduce", "broadcast", "reduce", "barrier", "_allgather_base", "reduce_scatter")


def signature(op: str, sizes: str) -> "tuple[str, str]":
    """What has to be the same in all ranks at one number."""
    return op, sizes if op in _SAME_SIZES else ""
