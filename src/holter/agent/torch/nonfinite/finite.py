"""Whether tensors in the host's memory are finite: read in pieces, for a bounded time, without touching them."""

from math import inf
from time import monotonic

from ...observe.loss_history import short

_PIECE = 1 << 20  # elements
_OUTLIER = 1e4  # times the usual size of a sample


class Clock:
    """How long a look may still take."""

    def __init__(self, seconds):
        self.until = monotonic() + seconds

    def over(self):
        return monotonic() > self.until


class Reading:
    """What was seen of one tensor."""

    __slots__ = ("high", "inf", "nan")

    def __init__(self):
        self.nan = self.inf = False
        self.high = 0.0  # the largest finite magnitude

    @property
    def bad(self):
        return self.nan or self.inf


def readable(torch, thing):
    """True for a tensor of real or complex numbers that lies in the host's memory."""
    return (
        isinstance(thing, torch.Tensor)
        and thing.device.type == "cpu"
        and thing.layout is torch.strided
        and (thing.is_floating_point() or thing.is_complex())
        and not thing.is_quantized
    )


def read(torch, tensor, clock):
    """Read a tensor; None when there was no time for all of it."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    found = Reading()
    for piece in _pieces(tensor):
        if clock.over():
            return found if found.bad else None
        if not piece.numel():
            continue
        low, high = (float(end) for end in torch.aminmax(piece))
        if low - low == 0.0 and high - high == 0.0:
            found.high = max(found.high, -low, high)
            continue
        found.nan = found.nan or bool(torch.isnan(piece).any())
        found.inf = found.inf or bool(torch.isinf(piece).any())
        finite = piece[torch.isfinite(piece)]
        if finite.numel():
            found.high = max(found.high, float(finite.abs().max()))
    return found


def _pieces(tensor):
    if tensor.numel() <= _PIECE:
        yield tensor
    elif tensor.is_contiguous():
        yield from tensor.view(-1).split(_PIECE)
    else:
        for row in tensor:
            yield from _pieces(row)


def samples(torch, tensor, found, clock):
    """Which samples along the first dimension are not finite, or far larger than the others."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dim() < 1 or not tensor.numel() or tensor.numel() > 16 * _PIECE or clock.over():
        return {}
    flat = tensor.reshape(tensor.shape[0], -1)
    fields = {"of": int(flat.shape[0])}
    if found.bad:
        wrong = ~torch.isfinite(flat)
        rows = wrong.any(1).nonzero().reshape(-1)
        fields.update(sample=int(rows[0]), samples=int(rows.numel()))
        columns = wrong.all(0)
        if flat.shape[0] > 1 and tensor.dim() == 2 and 0 < int(columns.sum()) < flat.shape[1]:
            fields["feature"] = int(columns.nonzero()[0])
        return fields
    if flat.shape[0] >= 2:
        sizes = flat.abs().amax(1).float()
        usual = float(sizes.median()) if flat.shape[0] > 2 else float(sizes.min())
        top = int(sizes.argmax())
        if float(sizes[top]) > _OUTLIER * max(usual, 1e-3):
            fields.update(sample=top, samples=int((sizes > _OUTLIER * max(usual, 1e-3)).sum()), usual=short(usual))
    return fields


def describe(torch, name, tensor, clock):
    """One tensor of a batch as fields of an event, or None when there was no time."""
    found = read(torch, tensor, clock)
    if found is None:
        return None
    fields = {"name": name, "dtype": str(tensor.dtype).replace("torch.", ""), "max": short(found.high)}
    if found.bad and not _is_mask(tensor, found):
        fields["bad"] = "nan" if found.nan else "inf"
    fields.update(samples(torch, tensor, found, clock))
    if "usual" in fields:
        fields["bad"] = "outlier"
    return fields


def _is_mask(tensor, found):
    """An attention mask holds zeros and minus infinities, on purpose."""
    return not found.nan and not found.high and not bool((tensor == float("inf")).any())


def of_named(torch, named, clock):
    """Parameters or gradients together: how many are not finite, the first of them, the largest magnitude."""
    fields: "dict" = {"bad": 0, "of": 0, "max": 0.0, "dtype": ""}
    dtypes = {}
    for name, tensor in named:
        if not readable(torch, tensor):
            continue
        found = read(torch, tensor, clock)
        if found is None:
            fields["cut"] = True
            break
        fields["of"] += 1
        dtype = str(tensor.dtype).replace("torch.", "")
        dtypes[dtype] = dtypes.get(dtype, 0) + tensor.numel()
        if found.bad:
            fields["bad"] += 1
            fields.setdefault("first", name)
            fields["last"] = name
        if found.high > fields["max"]:
            fields["max"], fields["largest"] = found.high, name
    fields["max"] = short(min(fields["max"], inf))
    fields["dtype"] = max(dtypes, key=dtypes.__getitem__) if dtypes else ""
    if len(dtypes) > 1:
        fields["dtypes"] = sorted(dtypes)
    return fields if fields["of"] else {}
