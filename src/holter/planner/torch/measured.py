"""Small real steps, each in a process of its own where it can be: what no prediction sees is measured there.

On the CPU a forked child per size gives the peak of a process that did nothing else. On a GPU they run here, on copies:
a plan is made in a child of its own where this process has not touched the GPU yet. What the user gave stays as it is.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...facts.host_memory import held, highest, status, trim
from ..aside import Lost, aside, can_fork
from ..mapped_heap import leave_no_holes
from .blocks import checkpointed
from .kernels_cuda import Taken, has_history, history, taken_by, watch_class
from .step import Recipe, batch_for, drop_gradients, one_step, optimizer_for

# Of the pages of libraries that a step in a child reads, the share that the parent had read already.
_KNOWN_PAGES = 0.5


@dataclass(frozen=True)
class Measured:
    """One size, as it really was: the peak in bytes (of the process on a CPU, of tensors on a GPU) and seconds."""

    rows: int
    peak: int
    seconds: float
    reserved: int = 0
    context: int = 0  # what the device's driver and libraries hold besides
    began: int = 0  # what the process held before
    error: str = ""
    kernels: Taken | None = None  # what each operation took while it ran, on a GPU


Job = tuple[Recipe, int]

# What a measured step may take of the room, and how many seconds it may last.
SMALL, LONG = 0.10, 1.5


def resident() -> int:
    """What this process holds now, without what the C library keeps for later; no mark is set."""
    trim()
    return status("VmRSS")


def of_files() -> int:
    """Resident pages of files: libraries. A forked child begins with next to none of them."""
    return status("RssFile")


def device_of(torch: Any, kind: str) -> Any:
    """The device that a plan of this kind is measured on."""
    return torch.device(kind, 0) if kind == "cuda" else torch.device(kind)


def measure(
    torch: Any, jobs: Sequence[Job], device: Any, steps: int = 3, patience: float = 120.0, kernels: bool = False
) -> list[Measured]:
    """Run the steps; a size that can't be run has its error instead of figures.

    With `kernels` one more step on a GPU says what each operation takes while it runs.
    """
    found: list[Measured] = []
    for recipe, rows in jobs:
        try:
            if device.type == "cuda":
                with torch.random.fork_rng(devices=[device]):
                    found.append(_on_cuda(torch, recipe, rows, device, steps, kernels))
            elif device.type == "cpu" and can_fork():
                answer = aside(lambda r=recipe, n=rows: asdict(_on_cpu(torch, r, n, steps)), patience)  # type: ignore[misc]
                found.append(Measured(**answer))
            else:
                found.append(_failed(rows, "this system can't run them in a process of their own"))
        except Lost as lost:
            found.append(_failed(rows, str(lost)))
    return found


def _failed(rows: int, why: str) -> Measured:
    return Measured(rows, 0, 0.0, error=why)


def _on_cpu(torch: Any, recipe: Recipe, rows: int, steps: int) -> Measured:
    torch.set_num_threads(1)  # the threads of the parent's pool are not here
    model = recipe.model.train()
    given = recipe.optimizer
    made = isinstance(given, torch.optim.Optimizer)
    optimizer = given if made else optimizer_for(torch, given, model.parameters())
    drop_gradients(model, optimizer)
    leave_no_holes()  # they differ from run to run, and are drawn by themselves
    began = held()
    if began is None:
        return _failed(rows, "the highest mark of a process's memory can't be read here")
    before = of_files()
    times = _steps(torch, recipe, model, optimizer, rows, torch.device("cpu"), steps)
    again = int(_KNOWN_PAGES * (of_files() - before))
    return Measured(rows, highest() - again, min(times[1:] or times), began=began)


def _on_cuda(torch: Any, recipe: Recipe, rows: int, device: Any, steps: int, kernels: bool) -> Measured:
    index = device.index if device.index is not None else 0
    cuda = torch.cuda
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    try:
        cuda.synchronize(index)
        if clear is not None:
            clear()
        cuda.empty_cache()
        before = cuda.memory_allocated(index)
        outside = _taken_outside(cuda, index)
        model, optimizer = _copies(torch, recipe, device)
        cuda.reset_peak_memory_stats(index)
        times = _steps(torch, recipe, model, optimizer, rows, device, steps)
        peak = cuda.max_memory_allocated(index) - before
        reserved = cuda.max_memory_reserved(index)
        context = _taken_outside(cuda, index) - outside
        found = Measured(rows, peak, min(times[1:] or times), reserved, max(0, context))
        if kernels:
            found = replace(found, kernels=_watched(torch, recipe, model, optimizer, rows, device))
        return found
    except Exception as error:
        return _failed(rows, f"{type(error).__name__}: {str(error)[:200]}")
    finally:
        model = optimizer = None
        if clear is not None:
            clear()
        cuda.empty_cache()


def _watched(torch: Any, recipe: Recipe, model: Any, optimizer: Any, rows: int, device: Any) -> Taken | None:
    """One more step, operation by operation."""
    if not has_history(torch):
        return None
    batch = batch_for(torch, recipe, rows, device, fake=False)
    with checkpointed(torch, model, recipe.checkpointing), history(torch, device.index or 0) as read:
        with watch_class(torch)(device) as watch:
            one_step(torch, recipe, model, optimizer, batch, device.type, watch.mark)
        return taken_by(watch.names, read()) or None


def _taken_outside(cuda: Any, index: int) -> int:
    """What of the device is taken, without the blocks of PyTorch's allocator."""
    free, total = cuda.mem_get_info(index)
    return int(total - free - cuda.memory_reserved(index))


def _copies(torch: Any, recipe: Recipe, device: Any) -> tuple[Any, Any]:
    """The model and the optimizer on the device, with tensors of their own."""
    given = recipe.optimizer
    made = isinstance(given, torch.optim.Optimizer)
    memo: dict[int, Any] = {}
    for tensor in [*recipe.model.parameters(), *recipe.model.buffers()]:
        if id(tensor) not in memo:
            moved = tensor.detach().to(device, copy=True)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            memo[id(tensor)] = torch.nn.Parameter(moved, requires_grad=tensor.requires_grad) if is_parameter else moved
    model = copy.deepcopy(recipe.model, memo).train()
    for part in model.modules():
        if hasattr(part, "flatten_parameters"):
            part.flatten_parameters()  # as moving a recurrent layer to a GPU does
    if not made:
        return model, optimizer_for(torch, given, model.parameters())
    state = given.state
    try:
        given.state = type(state)(dict)  # made anew by the first step: it need not be copied
        return model, copy.deepcopy(given, memo)
    finally:
        given.state = state


def _steps(torch: Any, recipe: Recipe, model: Any, optimizer: Any, rows: int, device: Any, steps: int) -> list[float]:
    times = []
    batch = batch_for(torch, recipe, rows, device, fake=False)
    wait: Callable[[], Any] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    with checkpointed(torch, model, recipe.checkpointing):
        for number in range(steps):
            began = time.perf_counter()
            each = recipe.with_(accumulates=recipe.accumulates and number > 0)
            one_step(torch, each, model, optimizer, batch, device.type, lambda _phase: None)
            wait()
            times.append(time.perf_counter() - began)
            if sum(times) > 10.0 and number:
                break
    return times


def good(found: Sequence[Measured]) -> list[Measured]:
    """Those that have figures."""
    return [one for one in found if not one.error]


def first_error(found: Sequence[Measured]) -> str | None:
    return next((one.error for one in found if one.error), None)
