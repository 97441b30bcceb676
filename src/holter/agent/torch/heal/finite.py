"""Whether gradients and weights in the host's memory are finite: one pass over them, the cheapest there is.

A sum that is a number clears a tensor. One that is none may still be the sum of large numbers that are, so that only
then each element is asked.
"""


def first_bad(torch, tensors):
    """The place of the first tensor that holds an infinity or a NaN; None where there is none."""
    with torch.no_grad():
        for at, tensor in enumerate(tensors):
            tensor = _plain(torch, tensor)
            if tensor is None:
                continue
            total = tensor.sum().item()
            if total - total != 0.0 and not bool(torch.isfinite(tensor).all()):
                return at
    return None


def _plain(torch, tensor):
    """The numbers of a tensor that can be read without making anything wait."""
    if tensor is None or not tensor.is_cpu or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor._values() if tensor.is_sparse else None
    return tensor
