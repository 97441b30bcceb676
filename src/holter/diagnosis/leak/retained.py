"""What the censuses inside the process found to grow: each with its name, its growth and the share it explains."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.record.events.looks import RetainedObject, RetainedObjects
from holter.units import count, size

# A census may catch a variable between two states: the last two together say what is held.
_LAST = 2
_MORE_THAN_ALL = 1.5
# A census follows the graphs of a container's entries so far (agent/retained/size.py): the rest is held, not weighed.
_NODES_LOOKED_AT = 150
# Where PyTorch keeps what a script knows as an attribute: `net._buffers['queue']` is its `net.queue`.
_OF_A_MODULE = re.compile(r"\._(?:buffers|parameters|modules)\['(\w+)'\]")


@dataclass(frozen=True)
class Holder(RetainedObject):
    """One variable, attribute or cache that holds more than it did, as last seen, with what of the growth it is."""

    line: int = 0
    length: int = 0
    nodes: int = 0
    nodes_before: int = 0
    bound: int = 0
    graph: bool = False
    held: float = 0.0
    grown: float = 0.0
    # How much of the growth of the process between the two censuses this is, 1 for all of it.
    share: float = 0.0
    pid: int | None = None
    step: int = 0
    step_before: int = 0
    backwards: int = 0  # of the present step, where it was seen within one
    when: float | None = None

    @property
    def each(self) -> float:
        """Give the bytes of one entry."""
        return self.held / self.length if self.length else 0.0

    @property
    def single(self) -> bool:
        """Tell one array, tensor or text from a container of several things."""
        return self.type in ("Tensor", "Parameter", "ndarray", "EagerTensor", "str", "bytes", "bytearray")

    @property
    def grew_in_length(self) -> bool:
        """Tell whether it has more entries than it had; of a tuple, which never gets more, if it was seen before."""
        if self.type == "tuple" and self.length_before is None:
            return False
        return self.length > 1.15 * (self.length_before or 0)

    @property
    def between_steps(self) -> bool:
        """Tell whether it grew while no step was taken: in a validation."""
        return self.length_before is not None and self.step == self.step_before and not self.backwards

    @property
    def seen_at(self) -> str:
        """Say when it was seen last: "step 12", "backward 31 of step 1"."""
        if self.backwards:
            return f"backward {count(self.backwards)} of step {count(self.step + 1)}"
        return f"step {count(self.step)}"

    @property
    def graph_grew(self) -> bool:
        """Tell whether the graph behind one variable got longer: a chain that is never cut."""
        return self.nodes >= 64 and self.nodes > 1.2 * self.nodes_before > 0

    @property
    def cut_short(self) -> bool:
        """Tell of a container whose entries hold more of a graph, with what its backward needs, than was weighed."""
        return self.graph and bool(self.saved) and not self.single and self.nodes >= _NODES_LOOKED_AT

    @property
    def full_size(self) -> float | None:
        """Give what it will hold when it is full; None where nothing bounds it."""
        return self.held * self.bound / self.length if self.bound and 0 < self.length <= self.bound else None

    @property
    def where(self) -> str:
        """Say what kind of name it is, for a sentence: "in the attribute `outputs` of `Net`"."""
        name = f"`{self.name}`"
        if self.scope == "cache":
            return f"the cache of `{self.name}()`"
        if self.scope == "default":
            return f"the default value of `{self.variable}` of `{self.owner}()`"
        if self.scope == "closure":
            return f"`{self.variable}`, which `{self.owner}()` closes over"
        return name

    @property
    def entries(self) -> str:
        least = "at least " if self.cut_short else ""
        each = f", {least}{size(self.each)} each" if self.each >= 1000 and not self.single else ""
        word = "entries" if self.type != "lru_cache" else "results"
        return f"{count(self.length)} {word}{each}"


@once
def holders_of(record: RecordLike, pids: tuple[int, ...] = ()) -> tuple[Holder, ...]:
    """Give the holders of some processes, of all where none are named, those that explain most first."""
    events_by_pid: dict[int | None, list[RetainedObjects]] = {}
    for event in record.of(RetainedObjects):
        pid = event.pid
        if not pids or pid in pids:
            events_by_pid.setdefault(pid, []).append(event)
    found: list[Holder] = []
    for events in events_by_pid.values():
        latest: dict[tuple[str, ...], Holder] = {}
        for event in events[-_LAST:]:
            for row in event.rows:
                holder = holder_of(event, row)
                if holder is not None:
                    latest[(holder.name, holder.scope, holder.owner, holder.file)] = holder
        found.extend(latest.values())
    return tuple(sorted(found, key=lambda holder: -holder.share))


def holder_of(event: RetainedObjects, row: RetainedObject) -> Holder | None:
    """Read one row of a census; None for one without a name."""
    held = (row.bytes or 0.0) + (row.device or 0.0)
    before = row.bytes_before
    on_device = (row.device or 0.0) > (row.bytes or 0.0)
    grew = _grew(event, on_device)
    grown = held - (before or 0.0)
    if before is None and grew > 0 and grown > _MORE_THAN_ALL * grew:
        grown = 0.0  # seen for the first time, and more than all that came since: it was there before
    if not row.name:
        return None
    row_fields: dict[str, Any] = {one.name: getattr(row, one.name) for one in fields(row)}
    row_fields |= {name: row_fields[name] or 0 for name in ("line", "length", "nodes", "nodes_before", "bound")}
    own = list(_OF_A_MODULE.finditer(row.name))
    if own:
        row_fields |= {"name": _OF_A_MODULE.sub(r".\1", row.name), "variable": own[-1][1]}
    return Holder(
        **(row_fields | {"graph": bool(row.graph)}),
        held=held,
        grown=grown,
        share=max(0.0, grown / grew) if grew > 0 else 0.0,
        pid=event.pid,
        step=event.step or 0,
        step_before=event.step_before or 0,
        backwards=event.backwards or 0,
        when=event.t,
    )


def _grew(event: RetainedObjects, on_device: bool) -> float:
    if on_device:
        return _rise(event.allocated_before, event.allocated)
    # What a forked worker copies was in its size from the start: its own pages tell how much it has grown.
    return max(_rise(event.rss_before, event.rss), _rise(event.private_before, event.private))


def _rise(before: float | None, now: float | None) -> float:
    return now - before if now is not None and before is not None else 0.0


def best_of(found: Iterable[Holder]) -> Holder | None:
    """Choose the holder that explains most; of those that hold the same things, the one that has them one by one."""
    growing = [one for one in found if one.grown > 0 or one.graph_grew]
    if not growing:
        return None
    top = max(one.grown for one in growing)
    near = [one for one in growing if one.grown >= 0.75 * top]
    # `history["loss"]` says more than `history`; what got longer says more than what only got heavier.
    return max(near, key=lambda one: (one.grew_in_length, len(one.name.split("[")), bool(one.file), one.grown))


def siblings_share(chosen: Holder, found: Iterable[Holder]) -> float:
    """Give the share of a holder together with those beside it in the same variable: `stats["a"]` and `stats["b"]`."""
    root, total = re.split(r"[.\[]", chosen.name)[0], 0.0
    counted: list[str] = []
    for one in found:
        beside = re.split(r"[.\[]", one.name)[0] == root and one.pid == chosen.pid and one.length_before is not None
        if beside and not any(one.name.startswith(name) or name.startswith(one.name) for name in counted):
            total += one.share
            counted.append(one.name)
    return total


def entries_that_fit(holder: Holder, limit: float | None) -> int:
    """Give how many entries take about a quarter of the memory, as a round number."""
    many = int(0.25 * (limit or 1e9) / max(holder.each, 100.0))
    digits = max(1, 10 ** (len(str(max(many, 1))) - 1))
    return int(max(1, many // digits * digits))
