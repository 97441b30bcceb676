"""What each operation takes on a GPU while it runs, and gives back at once: workspaces, sorted copies, partial sums.

It does not show in any result, and often not in the peak; but the allocator's segments are cut by it, and a step may
fail for that. So small real steps are watched, operation by operation. Libraries choose their kernels by size, so
convolutions and sums are run once more, each by itself, at the size that is asked for; other operations are not, since
what they are given must be right. The allocator's own history is read: nothing waits for the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..timeline import Program
from .ledger import call_name

Taken = Mapping[str, Program]  # operation -> what it takes, block by block

_CHANCE = 1 << 20  # less than this is not worth a question
_MAX_SHARE = 0.5  # of the room: what an operation with all that it is given and gives may take to be run by itself
_ASKED = ("aten.convolution", "aten.sum")
_STRAIGHT = 0.1  # how far below nothing a line may come out at no samples
_SAME = 0.005
_ENTRIES = 1_000_000
_MARKER = 13  # bytes: nobody else takes so many


@contextmanager
def history(torch: Any, index: int) -> Iterator[Callable[[], Sequence[Mapping[str, Any]]]]:
    """Have the allocator write down what it does; gives what reads it."""
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=_ENTRIES)
    try:
        yield lambda: torch.cuda.memory._snapshot()["device_traces"][index]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def has_history(torch: Any) -> bool:
    """Tell whether it can be had; not where somebody writes it down for themselves."""
    is_on = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return is_on is not None and not is_on() and hasattr(torch.cuda.memory, "_record_memory_history")


def watch_class(torch: Any) -> Any:
    """The mode's class; made here, since PyTorch is imported only where a plan is made with it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __init__(self, device: Any) -> None:
            super().__init__()
            self.device = device
            self.names: list[str] = []
            self.times: Counter[str] = Counter()
            self.phase = "before"

        def mark(self, phase: str) -> None:
            self.phase = phase

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self._cut()
            out = func(*args, **(kwargs or {}))
            self._cut()
            self.names.append(call_name(func, self.phase, self.times))
            return out

        def _cut(self) -> None:
            torch.empty(_MARKER, dtype=torch.uint8, device=self.device)

    return Watch


def taken_by(names: Sequence[str], trace: Sequence[Mapping[str, Any]]) -> dict[str, Program]:
    """What the operations took, by the history of a step with a marker before and after each of them."""
    cuts = [at for at, entry in enumerate(trace) if entry["action"] == "alloc" and entry["size"] == _MARKER]
    if len(cuts) != 2 * len(names):
        return {}
    pairs = zip(names, cuts[::2], cuts[1::2])
    return {name: temporary(trace[begin + 1 : end]) for name, begin, end in pairs}


def temporary(trace: Sequence[Mapping[str, Any]]) -> Program:
    """The blocks that were both taken and given back, in order."""
    begun: dict[int, int] = {}
    events: list[tuple[int, int]] = []
    given: set[int] = set()
    for entry in trace:
        if entry["action"] == "alloc" and entry["size"] != _MARKER:
            number = begun[entry["addr"]] = len(events)
            events.append((number, int(entry["size"])))
        elif entry["action"] == "free_completed" and entry["addr"] in begun:
            number = begun.pop(entry["addr"])
            given.add(number)
            events.append((number, 0))
    return tuple(event for event in events if event[0] in given)


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


class Kernels:
    """What operations take at any size, by what they took at a few."""

    def __init__(self, seen: Sequence[tuple[int, Taken]]) -> None:
        self.seen = sorted(seen, key=lambda one: one[0])
        self.known = frozenset(self.seen[-1][1]) if self.seen else frozenset()
        self.points: dict[str, list[tuple[int, int]]] = {}  # rows and bytes, by rows
        self.programs: dict[str, dict[int, Program]] = {}  # by rows
        self.asked: list[int] = []
        some = {name for _, taken in self.seen for name, program in taken.items() if program}
        for rows, taken in self.seen:
            self._learn(rows, {name: taken.get(name, ()) for name in some & self.known})

    def takers(self) -> list[str]:
        """The operations that take something, and can be asked."""
        large = [name for name, points in self.points.items() if points[-1][1] > _CHANCE]
        return [name for name in large if name.split()[1].startswith(_ASKED)]

    def is_known(self, rows: int) -> bool:
        """Tell whether a size like this was asked."""
        return any(abs(rows - asked) <= _SAME * asked for asked in self.asked)

    def learn(self, rows: int, taken: Taken) -> None:
        """Take in what operations took at another size."""
        self.asked.append(rows)
        self._learn(rows, taken)

    def _learn(self, rows: int, taken: Taken) -> None:
        for name, program in taken.items():
            self.programs.setdefault(name, {})[rows] = program
            others = [point for point in self.points.get(name, ()) if point[0] != rows]
            self.points[name] = sorted([*others, (rows, height_of(program))])

    def at(self, name: str, rows: int) -> int | None:
        """Bytes of an operation; None where it was not seen."""
        points = self.points.get(name)
        if not points:
            return 0 if name in self.known else None
        after = bisect_right(points, (rows, 1 << 62))
        if after == 0:
            return points[0][1]
        if after < len(points):
            return _between(points[after - 1], points[after], rows)
        last, size = points[-1]
        for before in points[-2:-1]:
            if before[1] <= size and _between(before, points[-1], 0) >= -_STRAIGHT * size:
                return _between(before, points[-1], rows)
        return round(size * rows / last)

    def program(self, name: str, rows: int) -> Program | None:
        """The same block by block."""
        known = self.programs.get(name)
        if not known:
            return None
        like = known[min(known, key=lambda size: max(size / rows, rows / size))]
        height = height_of(like)
        share = (self.at(name, rows) or 0) / height if height else 0.0
        return tuple((number, max(1, round(size * share)) if size else 0) for number, size in like)


def _between(one: tuple[int, int], two: tuple[int, int], rows: int) -> int:
    return round(one[1] + (two[1] - one[1]) * (rows - one[0]) / (two[0] - one[0]))


def ask(torch: Any, calls: Mapping[str, Any], device: Any, memory: int) -> dict[str, Program]:
    """Run operations one by one, as a step on fake tensors has called them; those that can't be are left out."""
    if not has_history(torch):
        return {}
    from torch.utils._pytree import tree_flatten

    found: dict[str, Program] = {}
    same: dict[str, Program | None] = {}
    for name, (func, args, kwargs) in calls.items():
        leaves = tree_flatten((args, kwargs))[0]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        plain = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        key = f"{func} {[(leaf.shape, leaf.stride(), leaf.dtype) for leaf in tensors]} {plain}"
        if key not in same:
            given = sum(leaf.numel() * leaf.element_size() for leaf in tensors)
            same[key] = _run(torch, func, args, kwargs, device) if 2 * given <= _MAX_SHARE * memory else None
        program = same[key]
        if program is not None:
            found[name] = program
    torch.cuda.empty_cache()
    return found


def _run(torch: Any, func: Any, args: Any, kwargs: Any, device: Any) -> Program | None:
    from torch.utils._pytree import tree_map

    try:
        with torch.no_grad():
            args, kwargs = tree_map(lambda leaf: _real(torch, leaf, device), (args, kwargs))
            with history(torch, device.index or 0) as read:
                out = func(*args, **kwargs)
                trace = read()
        del out
        return temporary(trace)
    except Exception:
        return None


def _real(torch: Any, leaf: Any, device: Any) -> Any:
    """Zeros of the same shape."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    where = device if leaf.device.type == device.type else leaf.device
    made = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=where)
    torch.empty(0, dtype=torch.uint8, device=where).set_(made.untyped_storage()).zero_()
    return made
