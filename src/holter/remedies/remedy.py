"""What a remedy is: the change that a cause asks for, carried into the next attempt by its environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holter.finding import Keeps


@dataclass(frozen=True)
class Remedy:
    """One change, what it keeps of the result, and whether it helps without a state to go on from."""

    name: str
    text: str  # what is different in the next attempt, as the end of a sentence
    keeps: Keeps
    because: str = ""  # why the result is not exactly the same
    environ: dict[str, str] = field(default_factory=dict)
    from_start: bool = False
    read_by: tuple[str, ...] = ()  # frameworks whose reflexes heed the environment; none where it takes no reflex


# How often this remedy was tried before in the same run -> the remedy, or None when it has no more to give.
Prescribe = Callable[[int], "Remedy | None"]
