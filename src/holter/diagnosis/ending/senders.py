"""Who sent a signal, where the recorder could see it."""

from __future__ import annotations

from dataclasses import dataclass

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import Exit, platform_of, signal_name
from holter.record.events.recorder import SignalReceived

# A trainer that catches a signal writes a checkpoint first; schedulers wait about that long for it.
_TIME_TO_LEAVE = 120.0


@dataclass(frozen=True)
class Sent:
    """A signal that reached Holter, who sent it, and when (wall-clock seconds)."""

    name: str
    who: str = ""
    sender: str = ""
    when: float | None = None


def sent_signal(record: RecordLike, left: Exit) -> Sent | None:
    """Give the signal that the end of the run answers to: the same one, or any one if it left by itself."""
    platform = platform_of(record)
    for event in reversed(record.of(SignalReceived)):
        name = signal_name(event.signal, platform)
        late = left.m is not None and not left.m - _TIME_TO_LEAVE <= event.m <= left.m + 1
        # A person who is refused by Ctrl-C goes on to SIGKILL; the two are one wish.
        fits = left.signal is None or name == left.signal
        if name not in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGXCPU", "SIGKILL") or late or not fits:
            continue
        return Sent(name, _who(event), event.sender, event.t)
    return None


def _who(event: SignalReceived) -> str:
    sender, pid, uid = event.sender, event.sender_pid, event.sender_uid
    if pid == 0:
        return sender or "the kernel or the terminal"
    known = sender or "a process"
    details = [f"pid {pid}"] if pid else []
    details += [f"user {uid}"] if uid is not None and pid else []
    return f"{known} ({', '.join(details)})" if details else sender
