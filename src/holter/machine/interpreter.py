"""The interpreter that would run the training, asked in short child processes that can't hold us up."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holter.errors import NoData, UsageError
from holter.facts import host_memory
from holter.facts.unused_gpu import reason_of
from holter.record.privacy import mask_text
from holter.units import size

_ASKED = Path(__file__).with_name("asked.py")
_QUICK = 20.0  # seconds, without a framework
_LIMIT = 60.0  # for a framework on a cold disk
_ROOM = 1_500_000_000  # bytes: a CUDA build takes about one GB to import
_LETTERS = 300
# What TensorFlow says of a GPU that it can't use; the rest of its log is about other things.
_TOLD = re.compile(r"Cannot dlopen|Could not load dynamic library|CUDA_ERROR_\w+|failed call to cuInit")
# By what is imported: the distributions that have it.
FRAMEWORKS = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-rocm", "tf-nightly"),
}


def find_python(chosen: str | None) -> str:
    """The interpreter that was named, else the one that `python` starts."""
    names = [chosen] if chosen is not None else ["python", "python3"]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None and chosen is not None:
        raise UsageError(f"{chosen} is no program that can be started", "Give the path of a Python: --python PATH")
    if found is None:
        raise NoData("there is no `python` on PATH (holter env --python PATH)")
    return found


def ask(python: str, word: str, limit: float) -> dict[str, Any]:
    """One answer of `asked.py`, with the last of what the child said on stderr; `NoData` where none came."""
    # The agent of a run that this one was started from stays out.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLTER_")}
    process = subprocess.Popen(
        [python, str(_ASKED), word], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environ, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise NoData(f"it gave no answer within {limit:.0f} s") from None
    finally:
        if process.poll() is None:  # also where the user has no patience
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    said = err.decode("utf-8", "replace")[-20_000:]
    if process.returncode < 0:
        raise NoData(f"it ended with {_signal(-process.returncode)}{_meaning(-process.returncode)}")
    try:
        answer = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        last = next((row for row in reversed(said.splitlines()) if row.strip()), f"exit code {process.returncode}")
        if last.startswith("SyntaxError"):
            raise NoData("it is older than Python 3.9") from None
        raise NoData(f"it did not answer: {mask_text(last.strip())[:_LETTERS]}") from None
    if not isinstance(answer, dict) or "failed" in answer:
        raise NoData(mask_text(str(answer.get("failed") if isinstance(answer, dict) else answer))[:_LETTERS])
    return {**answer, "stderr": said}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _meaning(number: int) -> str:
    if number == signal.SIGILL:
        return ": the build needs instructions that this CPU does not have"
    return ": out of memory, or somebody killed it" if number == signal.SIGKILL else ""


def packages(python: str) -> dict[str, Any]:
    """The interpreter, the versions of its packages, and what clashes among them; nothing is imported."""
    return ask(python, "packages", _QUICK)


def framework(python: str, name: str, gpu: Mapping[str, Any]) -> dict[str, Any]:
    """The device that a framework would use; where it is the CPU, why, and what to type where that is known.

    `gpu`: `there`, the name of the machine's GPU; `driver`, the newest CUDA that it runs; `translated`; `apple`.
    """
    left = host_memory.left()
    if left is not None and left < _ROOM:
        raise NoData(f"{size(left)} of memory are left, and importing it may take {size(_ROOM)}")
    answer = ask(python, name, _LIMIT)
    found = {key: answer[key] for key in ("version", "built_for", "device", "count")}
    found.update({"most": answer["most"]} if answer.get("most") else {})
    if found["device"]:
        return found
    reason = reason_of(
        name, found["version"], found["built_for"], translated=bool(gpu["translated"]),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"), driver=str(gpu["driver"]),
    )  # fmt: skip
    said = answer.get("said") or next((row for row in answer["stderr"].splitlines() if _TOLD.search(row)), "")
    because, do = "", ""
    if reason is not None:
        because, do = reason.words, next((how for _, how, _ in reason.cures if how), "")
    elif said and gpu["there"]:
        because = f"it says: {mask_text(said.strip())[:_LETTERS]}"
    elif gpu["there"]:
        because = "it sees none, and does not say why"
    if not gpu["there"]:
        because, do = f"{because}; no GPU is seen here" if because else "no GPU is seen here", ""
    if gpu["apple"] and name == "tensorflow":
        do = ""  # the build with CUDA that the reason speaks of is not for a Mac
    return {**found, "because": because, "do": do}
