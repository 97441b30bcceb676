"""What Holter can see of a training here: each by trying it, not by looking up whether it should work."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from holter.errors import NoData
from holter.probes.probe import Reading
from holter.recorder.platform import here
from holter.recorder.stacks import take

_STARTS = 10.0  # seconds that a Python may take to start
_SLEEPER = "print(flush=True); import time; time.sleep(60)"
_OF_THE_MACHINE = "this process is in no control group that counts them; the machine's own count is read"


def visible(readings: Mapping[str, Reading | NoData]) -> list[dict[str, Any]]:
    """Each with `what`, `seen`, and where it is not: why, and what to do where that is known."""
    cgroup, pss = readings["cgroup"], readings["proportional"]
    apple = readings["apple"]
    kills = None if isinstance(cgroup, NoData) or "oom_kill" in cgroup else NoData(_OF_THE_MACHINE)
    log = here("kernel_log")
    return [
        _row("kills by the kernel, counted by the control group", cgroup if kills is None else kills),
        _row("waiting for memory, CPU and disk (PSI)", readings["pressure"]),
        _row("the kernel's log", _kernel_log(log)),
        _row("NVIDIA GPUs (NVML)", readings["nvidia"]),
        _row("memory that processes share, counted once (PSS)", pss if isinstance(apple, NoData) else apple),
        _row("native frames of a process that hangs (py-spy)", _stacks()),
    ]


def _row(what: str, found: object) -> dict[str, Any]:
    absent = isinstance(found, NoData)
    return {"what": what, "seen": not absent, "because": str(found) if absent else ""}


def _kernel_log(module: Any) -> NoData | None:
    if module is None:
        return NoData("this system has none that can be read")
    try:
        module.KernelLog().close()
    except NoData as absent:
        return absent
    return None


def _stacks() -> NoData | None:
    """Try it on a small process of our own."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SLEEPER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as sleeper:
        try:
            if sleeper.stdout is None or not select.select([sleeper.stdout], [], [], _STARTS)[0]:
                return NoData("a Python to try it on did not start")
            threads, because = take.from_py_spy(sleeper.pid)
        finally:
            sleeper.kill()
    if threads:
        return None
    refused = any(word in because.lower() for word in ("permission", "not permitted", "root"))
    hint = getattr(here("system", "machine"), "HINT_FOR_PTRACE", "")
    return NoData(f"{because} ({hint})" if refused and hint else because)
