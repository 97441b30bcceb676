"""The ledger of one run's attempts: what was changed for each, how far it came, and when it is time to give up."""

from __future__ import annotations

from dataclasses import dataclass, field

from holter.remedies.remedy import Remedy

DOOMED_AFTER = 3  # restarts in a row that came no further


@dataclass(frozen=True, order=True)
class Position:
    """How far an attempt came, counted from the run's very beginning."""

    step: int = 0
    epoch: int = 0
    saved: int = 0  # checkpoints of the script's own, where nothing tells from which step it went on


@dataclass
class Ledger:
    """One entry per attempt."""

    furthest: Position = field(default_factory=Position)
    fruitless: int = 0  # restarts in a row without progress
    changes: list[Remedy] = field(default_factory=list)  # in the order they were tried

    def ended(self, reached: Position) -> None:
        """An attempt has ended there; the first one is no restart, and is judged by nothing."""
        on = (
            reached.step > self.furthest.step
            or reached.epoch > self.furthest.epoch
            or reached.saved > self.furthest.saved
        )
        self.fruitless = 0 if on or not self.changes else self.fruitless + 1
        self.furthest = Position(
            max(reached.step, self.furthest.step),
            max(reached.epoch, self.furthest.epoch),
            max(reached.saved, self.furthest.saved),
        )

    def tried(self, name: str) -> int:
        """How many restarts carried a remedy."""
        return sum(remedy.name == name for remedy in self.changes)

    @property
    def doomed(self) -> bool:
        return self.fruitless >= DOOMED_AFTER
