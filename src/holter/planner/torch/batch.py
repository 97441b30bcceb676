"""A batch of another size: the same kinds of tensors with more or fewer rows, real or fake."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(torch: Any, batch: Any) -> Iterator[Any]:
    """Every tensor of a batch, in order."""
    found: list[Any] = []
    apply(torch, batch, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return iter(found)


def apply(torch: Any, batch: Any, change: Callable[[Any], Any]) -> Any:
    """Change every tensor of a batch, whatever it is nested in; what is no tensor stays."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: apply(torch, value, change) for key, value in batch.items()}
        try:
            kind: Any = type(batch)
            return changed if kind is dict else kind(changed)
        except Exception:
            return changed
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(apply(torch, value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(apply(torch, value, change) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [one.name for one in dataclasses.fields(batch) if one.init]
        return dataclasses.replace(batch, **{name: apply(torch, getattr(batch, name), change) for name in names})
    return batch


def rows_of(torch: Any, batch: Any, dim: int = 0) -> int | None:
    """How many samples a batch has: the length that most of its tensors share along the batch dimension."""
    lengths = Counter(int(t.shape[dim]) for t in leaves(torch, batch) if t.dim() > dim)
    return lengths.most_common(1)[0][0] if lengths else None


def resized(torch: Any, batch: Any, rows: int, wanted: int, dim: int, device: Any, fake: bool) -> Any:
    """The batch with another number of rows on a device: its own samples over and over, or no data at all."""

    def change(tensor: Any) -> Any:
        grows = tensor.dim() > dim and int(tensor.shape[dim]) == rows
        if fake:
            shape = list(tensor.shape)
            if grows:
                shape[dim] = wanted
            return torch.empty(shape, dtype=tensor.dtype, device=device)
        if grows and wanted != rows:
            order = torch.arange(wanted, device=tensor.device) % rows
            tensor = tensor.index_select(dim, order)
        return tensor.detach().to(device)

    return apply(torch, batch, change)
