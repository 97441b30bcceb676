"""How the command left: its code or signal, also where a shell or a launcher stands in between; and who sent it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.core.evidence import on_macos
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import short_path
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.tracebacks import printed_text
from holter.record.events.agent import ExitCalled, UncaughtException
from holter.record.events.recorder import Ended, Exited, SignalReceived

_LINUX = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
    24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip
# The record may be read on another machine than it was made on, so the numbers are not asked of this one.
_DARWIN = {**_LINUX, 7: "SIGEMT", 10: "SIGBUS", 12: "SIGSYS", 30: "SIGUSR1", 31: "SIGUSR2"}

CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS", "SIGEMT"})
_WORDS = {
    "killed": "SIGKILL",
    "terminated": "SIGTERM",
    "hangup": "SIGHUP",
    "bus error": "SIGBUS",
    "segmentation fault": "SIGSEGV",
    "aborted": "SIGABRT",
    "illegal instruction": "SIGILL",
    "floating point exception": "SIGFPE",
}
# What launchers and loaders write when a child of theirs was ended by a signal.
_CHILD_DEATHS = (
    re.compile(r"exitcode\s*:\s*-(?P<number>\d{1,2})\)?\s*(?:local_rank: \d+ )?\(pid:\s*(?P<pid>\d+)\)"),
    re.compile(r"Signal \d{1,2} \((?P<name>SIG[A-Z]+)\) received by PID (?P<pid>\d+)"),
    re.compile(r"DataLoader worker \(pid\(?s?\)? (?P<pid>\d+)\) is killed by signal: (?P<words>[A-Za-z ]+)"),
    re.compile(r"terminated with signal (?P<name>SIG[A-Z]+)"),
    re.compile(r"died with <Signals\.(?P<name>SIG[A-Z]+): \d+>"),
    re.compile(r"line \d+:\s+(?P<pid>\d+) (?P<words>Killed|Terminated|Segmentation fault|Bus error|Aborted)"),
)
_FAILED_PID = re.compile(r"exitcode\s*:\s*(?:-(?P<signal>\d{1,2})|\d+)\s*\(pid:\s*(?P<pid>\d+)\)")
# What gloo, NCCL and their watchdogs say on a rank whose peers did not come, or went away.
PEER_LOST = re.compile(
    r"Connection closed by peer|Timed out waiting \d+ ?ms|Watchdog caught collective operation timeout|"
    r"wait timeout after \d+ms|gloo.{0,200}(?:Connection reset|Broken pipe|Socket closed|timed? ?out)|"
    r"NCCL.{0,200}(?:remote process exited|unhandled system error|timeout)|Socket Timeout|"
    r"failed to recv, got 0 bytes|DistNetworkError|(?:recvValue|sendBytes) failed on SocketImpl",
    re.DOTALL,
)
# A trainer that catches a signal writes a checkpoint first; schedulers wait about that long for it.
_TIME_TO_LEAVE = 120.0
# What trainers print when they are asked to stop, within their last words.
_SAYS_SIGNAL = re.compile(r"\b[Rr]eceived (?:signal )?(?:Signals\.)?(SIGTERM|SIGINT|SIGHUP|SIGUSR1|SIGXCPU)\b")
_LAST_WORDS = 4000


@dataclass(frozen=True)
class Exit:
    """The command's exit; `child` says that the signal struck a child, not the command itself."""

    code: int | None = None
    signal: str | None = None
    child: bool = False
    child_pid: int | None = None
    m: float | None = None
    t: float | None = None


def signal_name(value: str | int | None, *, macos: bool = False) -> str:
    """Give a signal's name from a name or a number, or the empty text."""
    text = value.strip().upper() if isinstance(value, str) else ""
    if text and not text.isdigit():
        return (text if text.startswith("SIG") else f"SIG{text}")[:20]
    found = int(text[:4]) if text else value
    table = _DARWIN if macos else _LINUX
    return table.get(found, f"signal {found}") if isinstance(found, int) and found > 0 else ""


@once
def exit_of(record: RecordLike) -> Exit | None:
    """Read the exit from the recorder's `end`, else from the keeper's `exited`."""
    macos = on_macos(record)
    events: list[Exited] = [*reversed(record.of(Ended)), *reversed(record.of(Exited))]
    for event in events:
        code, name = event.exit_code, signal_name(event.signal, macos=macos)
        if code is None and not name:
            continue
        if code is not None and code < 0 and not name:
            name, code = signal_name(-code, macos=macos), None
        # The keeper saw the child end; the recorder may come round to it seconds later.
        return _through_shell(record, Exit(code, name or None, m=min(one.m for one in events), t=event.t))
    return None


def ended_at(record: RecordLike) -> float | None:
    """Give the moment of the exit (monotonic); None before it, or where it was not seen."""
    exited = exit_of(record)
    return exited.m if exited is not None else None


def _through_shell(record: RecordLike, found: Exit) -> Exit:
    if found.signal is not None or not found.code:
        return found
    death = child_death(record)
    if under_timeout(record) and found.code == 124:
        return Exit(found.code, "SIGTERM", True, None, found.m, found.t)
    if death is not None:
        return Exit(found.code, death[0], True, death[1], found.m, found.t)
    # 128+N is a shell's word for a signal, unless the user's own code chose that number.
    chosen = any(event.status == str(found.code) for event in record.of(ExitCalled))
    table = _DARWIN if on_macos(record) else _LINUX
    if found.code > 128 and not chosen and found.code - 128 in table:
        return Exit(found.code, table[found.code - 128], True, None, found.m, found.t)
    return found


@once
def child_death(record: RecordLike) -> tuple[str, int | None] | None:
    """Find a child that a launcher, a loader or a shell reported as ended by a signal, the first of them."""
    output = _first_failure(record, printed_text(record))
    messages = "\n".join(_first_failure(record, event.message) for event in record.of(UncaughtException))
    for pattern in _CHILD_DEATHS:
        match = pattern.search(output) or pattern.search(messages)
        if match is None:
            continue
        groups = match.groupdict()
        name = groups.get("name") or _WORDS.get((groups.get("words") or "").strip().lower(), "")
        if groups.get("number"):
            name = _LINUX.get(int(groups["number"]), "")
        if name:
            return name, int(groups["pid"][:9]) if groups.get("pid") else None
    return None


def _first_failure(record: RecordLike, text: str) -> str:
    """Leave out what a launcher says of the ranks that it ended itself, because another had failed before.

    The first failure that a launcher observes may be a victim's, which raised since its peer was gone. Then a rank that
    was ended by another signal than the launcher's own came first.
    """
    root = text.rfind("Root Cause (first observed failure)")
    if root < 0:
        return text
    begin = max(text.rfind("\nFailures:", 0, root), 0)
    victims = {event.pid for event in record.of(UncaughtException) if PEER_LOST.search(event.message)}
    first = _FAILED_PID.search(text, root)
    if first is not None and int(first["pid"][:9]) in victims:
        for other in _FAILED_PID.finditer(text, begin, root):
            if (other["signal"] or "15") not in ("15", "2"):
                return text[:begin] + other[0]
    return text[:begin] + text[root:]


def under_timeout(record: RecordLike) -> bool:
    """Tell whether the command was started through timeout(1)."""
    return bool(record.facts.words) and short_path(record.facts.words[0]) in ("timeout", "gtimeout")


@dataclass(frozen=True)
class Sent:
    """A signal that reached Holter, who sent it, and when (wall-clock seconds)."""

    name: str
    who: str = ""
    sender: str = ""
    when: float | None = None


def sent_signal(record: RecordLike, exited: Exit) -> Sent | None:
    """Give the signal that the end of the run answers to: the same one, or any one if it left by itself."""
    macos = on_macos(record)
    for event in reversed(record.of(SignalReceived)):
        name = signal_name(event.signal, macos=macos)
        late = exited.m is not None and not exited.m - _TIME_TO_LEAVE <= event.m <= exited.m + 1
        # A person who is refused by Ctrl-C goes on to SIGKILL; the two are one wish.
        fits = exited.signal is None or name == exited.signal
        if name not in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGXCPU", "SIGKILL") or late or not fits:
            continue
        return Sent(name, _who(event), event.sender, event.t)
    # A signal that was sent to the training alone is known where it says so itself.
    said = _SAYS_SIGNAL.findall(printed_text(record)[-_LAST_WORDS:]) if exited.code == 0 else []
    return Sent(said[-1]) if said else None


def _who(event: SignalReceived) -> str:
    sender, pid, uid = event.sender, event.sender_pid, event.sender_uid
    if pid == 0:
        return sender or "the kernel or the terminal"
    known = sender or "a process"
    details = [f"pid {pid}"] if pid else []
    details += [f"user {uid}"] if uid is not None and pid else []
    return f"{known} ({', '.join(details)})" if details else sender
