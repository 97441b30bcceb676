"""What the kernel still tells of the time a run died in: kills for lack of memory, crashes, GPU faults, failing disks.

From its own log, else from the journal where `journalctl` is there; neither is asked to be opened.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from holter.errors import NoData
from holter.recorder.platform import here

_BEFORE_S = 300.0  # a fault of a GPU or a disk may come that long before the last word of the log
_AFTER_S = 600.0  # and what launchers and shells write after a kill takes up to this long
_PATIENCE_S = 5.0
_MAX_LINES = 20_000
_SHORT_UNIX = re.compile(r"^(?P<at>\d{9,11}\.\d+) \S+ kernel: (?P<text>.*)$")


@dataclass(frozen=True)
class KernelWords:
    """Lines as the record's `kernel` events have them, with `t` in wall-clock seconds; and why there are none."""

    lines: tuple[dict[str, Any], ...] = ()
    since: float | None = None  # the oldest moment that was seen; what came before it is not known
    because: str = ""

    @property
    def readable(self) -> bool:
        return not self.because

    def saw(self, when: float | None) -> bool:
        """Tell whether the silence of the log at that moment means that nothing happened."""
        return self.readable and when is not None and self.since is not None and self.since <= when

    def around(self, when: float | None) -> list[dict[str, Any]]:
        """The lines that may bear on a run that last wrote at that moment."""
        if when is None:
            return []
        return [line for line in self.lines if when - _BEFORE_S <= line["t"] <= when + _AFTER_S]


def kernel_words(around: float | None) -> KernelWords:
    """Read what is left of the kernel's log, and the journal where that does not reach back far enough."""
    found = _own_log()
    if found.saw(around):
        return found
    journal = _journal(around)
    return journal if journal.readable else found


def _own_log() -> KernelWords:
    module = here("kernel_log")
    if module is None:
        return KernelWords(because="this system has no log of the kernel that can be read")
    try:
        log = module.KernelLog(from_now=False)
    except NoData as absent:
        return KernelWords(because=str(absent))
    # The kernel's clock stands still while the machine sleeps: the wall clock is true for the time since.
    booted = time.time() - time.monotonic()
    try:
        lines = [{**line, "t": booted + line["at"]} for line in log.drain()]
    finally:
        log.close()
    # The log is a ring: its oldest lines may have been written over.
    return KernelWords(tuple(lines), since=booted + (log.oldest or 0.0))


def _journal(around: float | None) -> KernelWords:
    command, module = shutil.which("journalctl"), here("kernel_log")
    if command is None or module is None or around is None:
        return KernelWords(because="there is no journal")
    since, until = int(around - _BEFORE_S), int(around + _AFTER_S)
    words = [command, "--dmesg", "--boot=all", f"--since=@{since}", f"--until=@{until}", "--output=short-unix",
             "--no-pager", "--quiet", f"--lines={_MAX_LINES}"]  # fmt: skip
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError) as error:
        return KernelWords(because=f"journalctl failed: {type(error).__name__}")
    lines = []
    for raw in done.splitlines():
        line = _SHORT_UNIX.match(raw)
        entry = module.parse_text(line["text"]) if line is not None else None
        if line is not None and entry is not None:
            lines.append({**entry, "at": float(line["at"]), "t": float(line["at"])})
    return KernelWords(tuple(lines), since=float(since)) if done else KernelWords(because="the journal is empty there")
