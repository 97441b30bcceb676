"""What a probe is: one source of readings from outside the training process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Reading = Mapping[str, Any]


@dataclass
class Tree:
    """The run as the probes see it: the command's process and all that descends from it, alive at this moment."""

    root: int
    pids: Sequence[int]


class Probe(Protocol):
    """One source. `read` returns its fields as docs/record.md names them, or raises `NoData("because …")`."""

    name: str
    every: float  # seconds between readings in calm
    urgent: bool  # read at every urgent tick too, ten times a second: only what tells how near the wall is

    def read(self, tree: Tree) -> Reading: ...
