"""Stacks of a process: asked of a thread of ours inside it, of faulthandler where nothing moves, and of py-spy."""

from __future__ import annotations

import json
import linecache
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holter.recorder.loop.processes import any_runs, cpu_of

_THREAD = re.compile(
    r"^(?:(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>.*?)\])? ?.*|Stack )\(most recent call first\):", re.M
)
_ALL = re.compile(r"^(?:Current thread|Thread) 0x.*?(?=^Stack |\Z)", re.M | re.S)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_LIBRARY = re.compile(r"(site|dist)-packages|/lib(64)?/python\d|^<frozen|/holter/(?:agent|beacon)/")
_MAX_WAIT_S = 2.0
_GIL = 1.0  # seconds in which a process gets round to our thread, unless its GIL is stuck
_STARVED = 3.0  # and in which it does on a machine with more to do than it can
_COMPUTED = 0.5  # seconds of a process's own in which Python's code would have let the GIL go a hundred times


def ask_signal() -> int | None:
    """The signal that agents arm; the same choice as in the agent."""
    if hasattr(signal, "SIGRTMIN"):
        return int(signal.SIGRTMIN) + 11
    return int(getattr(signal, "SIGINFO", 0)) or None


def ask(pid: int, path: Path, tid: int | None = None) -> int | None:
    """Ask a process that runs for the stack of one thread, the main one unless another is named.

    Returns where in the process's file the answer will begin; None when it can't be asked.
    """
    return _question(path, str(tid or pid))


def _question(path: Path, word: str) -> int | None:
    """Put a question to the thread that waits for some; it answers when it has the GIL."""
    try:
        begin = path.stat().st_size
        pipe = os.open(path.with_suffix(".ask"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None  # there is no such thread, or nobody at the other end
    try:
        os.write(pipe, word.encode() + b" ")
    except OSError:
        return None
    finally:
        os.close(pipe)
    return begin


def ask_stuck(pid: int, path: Path) -> int | None:
    """Ask a process of which it is known that its GIL is held in compiled code."""
    return _ask_faulthandler(pid, path, is_stuck=True)


def _ask_faulthandler(pid: int, path: Path, *, is_stuck: bool) -> int | None:
    """Have faulthandler write the stacks of all threads; only where no frame moves."""
    number = ask_signal()
    before = _ready(pid, number, path)
    if number is None or before is None or (not is_stuck and any_runs(pid)):
        return None
    try:
        os.kill(pid, number)
    except OSError:
        return None
    return before


def _ready(pid: int, number: int | None, path: Path) -> int | None:
    """Where the next answer will begin, if the process will not be harmed by the question."""
    if number is None or not path.exists() or not _safe(pid, number, path):
        return None
    return path.stat().st_size


def written(path: Path, begin: int, end: int | None = None) -> list[dict[str, Any]]:
    """The stacks that a process has written to its file, from one place to another."""
    return parse(_text(path, begin, end))


def _text(path: Path, begin: int, end: int | None = None) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            most = min(1 << 20, end - begin) if end is not None else 1 << 20
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def from_agent(pid: int, agent_dir: Path) -> tuple[list[dict[str, Any]], str]:
    """The stacks of all threads of a process and who has told them, as soon as they are whole; [] when nobody does.

    Where our thread does not answer though the process computes, the GIL is held in compiled code. Then no frame
    moves, and faulthandler is safe whatever runs; where that is not known it is only if nothing runs.
    """
    path = agent_dir / f"{pid}.stacks"
    begun, had = time.monotonic(), cpu_of(pid)
    before, is_stuck = _question(path, "all"), False
    while before is not None:
        found = _answer(path, before, _GIL)
        if found:
            return found, "guest"
        is_stuck = cpu_of(pid) - had >= _COMPUTED
        if is_stuck or not any_runs(pid) or time.monotonic() - begun >= _STARVED:
            break
    before = _ask_faulthandler(pid, path, is_stuck=is_stuck)
    return (_answer(path, before, _MAX_WAIT_S), "faulthandler") if before is not None else ([], "")


def _answer(path: Path, begin: int, patience: float) -> list[dict[str, Any]]:
    """All threads, from between answers to questions for one that were still open."""
    deadline = time.monotonic() + patience
    before: list[str] = []
    while time.monotonic() < deadline:
        time.sleep(0.05)
        found = _ALL.findall(_text(path, begin))
        if found and found == before:
            break  # nothing was added since the last look: it is whole
        before = found
    return parse(before[0]) if before else []


def _safe(pid: int, number: int, path: Path) -> bool:
    """The process still catches our signal and still holds our file: after an exec it would do neither."""
    if not sys.platform.startswith("linux"):
        return True  # SIGINFO is ignored by default there
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.M)
        if caught is None or not int(caught.group(1), 16) >> (number - 1) & 1:
            return False
        wanted = os.stat(path)
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                there = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    except OSError:
        pass
    return False


def parse(text: str) -> list[dict[str, Any]]:
    """faulthandler's text as threads, innermost frame first; the main thread is the last it prints."""
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        head = _THREAD.match(line)
        if head:
            threads.append({"name": head.group("name") or "", "current": line.startswith("Current"), "frames": []})
            continue
        frame = _FRAME.match(line)
        if frame and threads:
            number = int(frame.group("line")) if frame.group("line").isdigit() else 0
            threads[-1]["frames"].append(_frame(frame.group("file"), number, frame.group("function")))
    if threads:
        threads[-1]["name"] = threads[-1]["name"] or "main"
        threads[-1]["main"] = True
    return threads


def _frame(file: str, line: int, function: str) -> dict[str, Any]:
    frame: dict[str, Any] = {"file": file, "line": line, "function": function, "user": is_user(file)}
    if frame["user"]:
        frame["code"] = linecache.getline(file, line).strip()[:200]
    return frame


def is_user(file: str) -> bool:
    return not _LIBRARY.search(file) and "/" in file and file.endswith((".py", ".ipynb"))


def from_py_spy(pid: int, *, native: bool = True, patience: float = 10.0) -> tuple[list[dict[str, Any]], str]:
    """Stacks with native frames, from outside; [] and the reason when py-spy is not here or may not attach."""
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if tool is None:
        return [], "py-spy is not installed (pip install 'holter[stacks]')"
    command = [tool, "dump", "--pid", str(pid), "--json", *(["--native"] if native else [])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=patience, stdin=subprocess.DEVNULL, check=False)
        raw = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return [], f"py-spy failed: {error}"
    if not isinstance(raw, list):
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if native and "native" in " ".join(last).lower():
            return from_py_spy(pid, native=False, patience=patience)
        return [], "py-spy: " + (last[-1][:200] if last else f"exit code {done.returncode}")
    threads = []
    for thread in raw:
        frames = [
            _frame(str(f.get("filename", "")), int(f.get("line") or 0), str(f.get("name", "")))
            for f in thread.get("frames", [])
        ]
        name = str(thread.get("thread_name") or "")
        main = name == "MainThread" or thread.get("os_thread_id") == pid
        threads.append({"name": name, "current": bool(thread.get("active")), "frames": frames, "main": main})
    return threads, ""


def place_of(threads: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Where the main thread stands: the user's innermost frame, or the innermost of all."""
    main = next((t for t in threads if t.get("main")), threads[-1] if threads else None)
    if main is None or not main["frames"]:
        return None
    found: dict[str, Any] = next((frame for frame in main["frames"] if frame["user"]), main["frames"][0])
    return found


def same_place(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> bool:
    """True when the main thread's Python frames are the same at both looks."""

    def key(threads: list[dict[str, Any]]) -> list[tuple[str, int]]:
        main = next((t for t in threads if t.get("main")), threads[-1] if threads else {"frames": []})
        return [(f["file"], f["line"]) for f in main["frames"] if f["file"].endswith(".py")]

    return bool(key(first)) and key(first) == key(second)
