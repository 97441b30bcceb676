"""What can go wrong for a person at the command line, each with its exit code."""

from __future__ import annotations


class HolterError(Exception):
    """A failure that is told to the user as one line: the fact, then what to do."""

    exit_code = 1

    def __init__(self, fact: str, remedy: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.fact}. {self.remedy}" if self.remedy else self.fact


class UsageError(HolterError):
    exit_code = 2


class UnknownRun(HolterError):
    exit_code = 3


class DamagedRecord(HolterError):
    exit_code = 4


class NoSuchProcess(HolterError):
    exit_code = 5


class NotPermitted(HolterError):
    exit_code = 6


class NotInstalled(HolterError):
    """A part of Holter that comes as an extra, and is not there."""

    exit_code = 8


class NoData(Exception):
    """A reading that does not exist here, with the reason: absence is told, never turned into a zero."""


# Exit codes of `holter run` that are not the command's own; the numbers are those of env(1) and timeout(1).
EXIT_DOOMED = 123  # under --heal: restart after restart came no further
EXIT_HUNG = 124
EXIT_HOLTER_FAILED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
