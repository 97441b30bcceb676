"""What each operation takes on a GPU while it runs, and gives back at once: workspaces, sorted copies, partial sums.

It does not show in any result, and often not in the peak; but the allocator's segments are cut by it, and a step may
fail for that. So a small real step is watched, operation by operation; and since libraries choose their kernels by
size, operations that were seen to take something are run once more, each by itself, at the size that is asked for.
The allocator's own figures are read: nothing waits for the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .ledger_torch import call_name
from .timeline import Program

Taken = Mapping[str, int]  # operation -> bytes

_CHANCE = 1 << 20  # the allocator hands out up to so much more than was asked for
_MOST = 0.5  # of the room: what an operation with all that it is given and gives may take to be run by itself
_NEAR = 1.5  # how far from the size that was asked an operation is taken to choose the same
_SAME = 0.005
_ENTRIES = 10_000


def watch_class(torch: Any) -> Any:
    """The mode's class; made here, since PyTorch is imported only where a plan is made with it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index
            self.taken: dict[str, int] = {}
            self.times: Counter[str] = Counter()
            self.phase = "before"

        def mark(self, phase: str) -> None:
            self.phase = phase

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            torch.cuda.reset_peak_memory_stats(self.index)
            out = func(*args, **(kwargs or {}))
            more = torch.cuda.max_memory_allocated(self.index) - torch.cuda.memory_allocated(self.index)
            self.taken[call_name(func, self.phase, self.times)] = max(0, int(more))
            return out

    return Watch


class Kernels:
    """What operations take at any size, by what they took at a few."""

    def __init__(self, seen: Sequence[tuple[int, Taken]]) -> None:
        self.seen = sorted(seen, key=lambda one: one[0])
        self.known = frozenset(self.seen[-1][1]) if self.seen else frozenset()
        self.points: dict[str, list[tuple[int, int]]] = {}  # rows and bytes, by rows
        self.programs: dict[str, dict[int, Program]] = {}  # by rows, where they were asked: block by block
        self.asked: list[int] = []
        for name in self.takers():
            self.points[name] = [(rows, taken.get(name, 0)) for rows, taken in self.seen]

    def takers(self) -> list[str]:
        """The operations that were seen to take something."""
        return [name for name, size in self.seen[-1][1].items() if size > _CHANCE] if self.seen else []

    def is_known(self, rows: int) -> bool:
        """Tell whether a size like this was asked."""
        return any(abs(rows - asked) <= _SAME * asked for asked in self.asked)

    def learn(self, rows: int, programs: Mapping[str, Program]) -> None:
        """Take in what operations took at another size."""
        self.asked.append(rows)
        for name, program in programs.items():
            self.programs.setdefault(name, {})[rows] = program
            others = [point for point in self.points[name] if point[0] != rows]
            self.points[name] = sorted([*others, (rows, height_of(program))])

    def at(self, name: str, rows: int) -> int | None:
        """Bytes of an operation; None where it was not seen."""
        if name not in self.known:
            return None
        points = self.points.get(name)
        if not points:
            return self.seen[-1][1][name]
        after = bisect_right(points, (rows, 1 << 62))
        if after == len(points):
            last, size = points[-1]
            return round(size * rows / last)
        if after == 0:
            return points[0][1]
        (low, some), (high, more) = points[after - 1], points[after]
        return round(some + (more - some) * (rows - low) / (high - low))

    def program(self, name: str, rows: int) -> Program | None:
        """The same block by block, where it was asked at a size like this."""
        known = self.programs.get(name, {})
        asked = min(known, key=lambda size: max(size / rows, rows / size), default=0)
        if not asked / _NEAR <= rows <= asked * _NEAR:
            return None
        return tuple((number, round(size * rows / asked)) for number, size in known[asked])


def height_of(program: Program) -> int:
    """The most that a program holds at once."""
    live: dict[int, int] = {}
    best = 0
    for number, size in program:
        if size:
            live[number] = size
            best = max(best, sum(live.values()))
        else:
            live.pop(number, None)
    return best


def ask(torch: Any, calls: Mapping[str, Any], device: Any, room: int) -> dict[str, Program]:
    """Run operations one by one, as a step on fake tensors has called them; those that can't be are left out."""
    if torch._C._cuda_isHistoryEnabled():
        return {}  # somebody writes it down for themselves
    from torch.utils._pytree import tree_flatten

    found: dict[str, Program] = {}
    same: dict[str, Program | None] = {}
    for name, (func, args, kwargs) in calls.items():
        leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        key = f"{func} {[(leaf.shape, leaf.stride(), leaf.dtype) for leaf in leaves]} {_plain(torch, (args, kwargs))}"
        if key not in same:
            given = sum(leaf.numel() * leaf.element_size() for leaf in leaves)
            same[key] = _run(torch, func, args, kwargs, device) if 2 * given <= _MOST * room else None
        program = same[key]
        if program is not None:
            found[name] = program
    torch.cuda.empty_cache()
    return found


def _plain(torch: Any, tree: Any) -> str:
    from torch.utils._pytree import tree_flatten

    return str([leaf for leaf in tree_flatten(tree)[0] if not isinstance(leaf, torch.Tensor)])


def _run(torch: Any, func: Any, args: Any, kwargs: Any, device: Any) -> Program | None:
    from torch.utils._pytree import tree_map

    index = device.index or 0
    record = torch.cuda.memory._record_memory_history
    try:
        with torch.no_grad():
            args, kwargs = tree_map(lambda leaf: _real(torch, leaf, device), (args, kwargs))
            record(enabled="all", context=None, max_entries=_ENTRIES)
            try:
                out = func(*args, **kwargs)
                trace = torch.cuda.memory._snapshot()["device_traces"][index]
            finally:
                record(enabled=None)
        del out
        return _temporary(trace)
    except Exception:
        return None


def _real(torch: Any, leaf: Any, device: Any) -> Any:
    """Zeros of the same shape: they are valid indices, too."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    where = device if leaf.device.type == device.type else leaf.device
    made = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=where)
    torch.empty(0, dtype=torch.uint8, device=where).set_(made.untyped_storage()).zero_()
    return made


def _temporary(trace: Sequence[Mapping[str, Any]]) -> Program:
    """The blocks that were both taken and given back, in order."""
    begun: dict[int, int] = {}
    events: list[tuple[int, int]] = []
    given: set[int] = set()
    for entry in trace:
        if entry["action"] == "alloc":
            number = begun[entry["addr"]] = len(events)
            events.append((number, int(entry["size"])))
        elif entry["action"] == "free_completed" and entry["addr"] in begun:
            number = begun.pop(entry["addr"])
            given.add(number)
            events.append((number, 0))
    return tuple(event for event in events if event[0] in given)
