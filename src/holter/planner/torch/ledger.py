"""Follows every block of memory that a PyTorch step takes and gives back, operation by operation.

It stands between the step and the fake tensors: storages are followed, not tensors, so that views cost nothing; and a
block ends when the last who holds it lets go. What depends on data that is not there is answered here: a scalar read
back is one (zero would divide), a selection keeps everything (the most that it can).
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from ..timeline import ALLOCATE, MOMENT, RELEASE, Timeline, settle
from . import recurrent_cudnn

Unseen = Callable[[Any, Any, Any], int]


def call_name(func: Any, phase: str, times: Counter[str]) -> str:
    """An operation by its phase, its name and how often it has come there: so it is found again in another step."""
    name = f"{phase} {func}"
    times[name] += 1
    return f"{name} {times[name]}"


def ledger_class(torch: Any) -> Any:
    """The mode's class; made here, since PyTorch is imported only where a plan is made with it."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten

    aten = torch.ops.aten

    class Ledger(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __init__(
            self, kind: str, unseen: Unseen | None = None, heap: Any = None, wanted: Collection[str] = ()
        ) -> None:
            super().__init__()
            self.kind = kind  # the device's type; other memory is not ours to count
            self.unseen = unseen
            self.heap = heap  # where blocks are really taken, if anywhere
            self.timeline = Timeline()
            self.blocks: dict[int, int] = {}  # id of a storage that lives -> its number
            self.made = 0
            self.times: Counter[str] = Counter()
            self.wanted = wanted  # calls whose arguments are kept
            self.kept: dict[str, Any] = {}
            self.on = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            answer = self._answered(func, args)
            out = func(*args, **kwargs) if answer is None else answer[0]
            if self.on:
                for leaf in tree_flatten(out)[0]:
                    if isinstance(leaf, torch.Tensor):
                        self.see(leaf)
                self._moment(func, args, kwargs, out)
            return out

        def _moment(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
            """What the operation itself takes while it runs."""
            if self.unseen is None:
                return
            size = int(self.unseen(func, args, out))
            self.timeline.events.append((MOMENT, len(self.timeline.calls), size))
            marks = self.timeline.marks
            name = call_name(func, marks[-1] if marks else "before", self.times)
            self.timeline.calls.append(name)
            if name in self.wanted:
                self.kept[name] = func, args, kwargs
            if size and self.heap is not None and "convolution" not in str(func):  # oneDNN keeps its own
                self.heap.take((0, 0), size)
                self.heap.give((0, 0))

        def see(self, tensor: Any, part: str | None = None) -> None:
            """Count a tensor's storage, once, and say what it is where that is known."""
            if tensor.device.type != self.kind or tensor.layout is not torch.strided:
                return
            storage = tensor.untyped_storage()
            number = self.blocks.get(id(storage))
            if number is None:
                self.made += 1
                number = self.blocks[id(storage)] = self.made
                self.timeline.events.append((ALLOCATE, number, storage.nbytes()))
                if self.heap is not None:
                    self.heap.take((id(self), number), storage.nbytes())
                weakref.finalize(storage, self._gone, id(storage), number).atexit = False
            if part is not None:
                self.timeline.parts[number] = part

        def _gone(self, key: int, number: int) -> None:
            if self.blocks.get(key) == number:
                del self.blocks[key]
                if self.heap is not None:
                    self.heap.give((id(self), number))
                if self.on:
                    self.timeline.events.append((RELEASE, number, 0))

        def finish(self) -> Timeline:
            """Stop counting and hand over the step."""
            self.on = False
            settle(self.timeline)
            return self.timeline

        def _answered(self, func: Any, args: Any) -> tuple[Any] | None:
            if func is aten._local_scalar_dense.default:
                kind = args[0].dtype
                return (False if kind is torch.bool else 1.0 if kind.is_floating_point else 1,)
            if func is aten.nonzero.default:
                return (args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.int64),)
            if func is aten.masked_select.default:
                return (args[0].new_empty((max(args[0].numel(), args[1].numel()),)),)
            if func is aten._cudnn_rnn.default:
                return (recurrent_cudnn.forward(torch, args),)
            if func is aten._cudnn_rnn_backward.default:
                return (recurrent_cudnn.backward(args),)
            if func is aten.index.Tensor and any(i is not None and i.dtype is torch.bool for i in args[1]):
                return self._masked(args[0], args[1])
            return None

        def _masked(self, source: Any, masks: Any) -> tuple[Any] | None:
            """A selection by one mask over the leading dimensions: all of it."""
            if len(masks) != 1:
                return None
            mask = masks[0]
            return (source.new_empty((mask.numel(), *source.shape[mask.dim() :])),)

    return Ledger
