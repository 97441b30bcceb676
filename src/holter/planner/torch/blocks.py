"""Activation checkpointing for a model that does not have it: its repeated blocks are computed again in backward."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def blocks_of(torch: Any, model: Any) -> list[Any]:
    """The blocks of a model: the children of its lists and sequences, outermost, where there are several."""
    found: list[Any] = []

    def look(module: Any) -> None:
        for child in module.children():
            several = isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)) and len(child) > 1
            inside = [one for one in child.children() if any(True for _ in one.parameters())] if several else []
            if len(inside) > 1 and all(_is_block(torch, one) for one in inside):
                found.extend(inside)
            else:
                look(child)

    look(model)
    return found


def _is_block(torch: Any, module: Any) -> bool:
    """Worth the while: more than one layer that is trained, and nothing that is called in a way of its own."""
    if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        return False
    layers = [one for one in module.modules() if any(True for _ in one.parameters(recurse=False))]
    return len(layers) > 1


@contextlib.contextmanager
def checkpointed(torch: Any, model: Any, on: bool) -> Iterator[None]:
    """Compute the blocks again in backward while this lasts; the model is what it was afterwards."""
    blocks = blocks_of(torch, model) if on else []
    if not blocks:
        yield
        return
    from torch.utils.checkpoint import checkpoint

    for block in blocks:
        inner = block.forward

        def forward(*args: Any, _inner: Any = inner, **kwargs: Any) -> Any:
            return checkpoint(_inner, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

        block.__dict__["forward"] = forward
    try:
        yield
    finally:
        for block in blocks:
            block.__dict__.pop("forward", None)
