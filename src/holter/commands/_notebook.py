"""`%%holter` in a notebook: the cell as a run of its own, with a live chart above its output and the verdict below.

The cell runs in a process of its own: it sees no variables of the notebook, and one that is killed for lack of memory
takes no kernel with it. One that fails raises, so that what comes after it does not run on nothing.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from holter.errors import DamagedRecord
from holter.figures.gauges import gauges_of
from holter.figures.rows import quick_row
from holter.own_process import own_process
from holter.record import place
from holter.record.reader import read_meta
from holter.units import size
from holter.views.mini_chart import Curve, mini_chart
from holter.views.plain import clean, sparkline

_LOOKS_EVERY_S = 1.0
_POINTS = 40  # of the text
_CHART_POINTS = 600  # readings, one a second: of a longer run every other one is let go


class CellFailed(Exception):
    """The cell ended with an exit code of its own; what was wrong stands in the verdict."""

    def __init__(self, code: int) -> None:
        ended = _signal_name(code)
        super().__init__(f"the cell ended with {ended}; why is in the verdict above. The notebook's variables are kept")
        self.code = code

    def _render_traceback_(self) -> list[str]:
        """IPython asks for the lines to show: the frames of the magic would say nothing to anyone."""
        return [f"holter: {self}"]


def _signal_name(code: int) -> str:
    try:
        return f"{signal.Signals(code - 128).name} (exit code {code})" if code > 128 else f"exit code {code}"
    except ValueError:
        return f"exit code {code}"


def load(shell: Any) -> None:
    """Make the magic known to an IPython shell."""
    shell.register_magic_function(lambda line, cell: run_cell(shell, line, cell), "cell", "holter")


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run the cell under `holter run` with the options of the line; its exit code is in `_exit_code`.

    Raises CellFailed where that is not 0.
    """
    with tempfile.TemporaryDirectory(prefix="holter-cell-") as folder:
        script = Path(folder, f"cell_{getattr(shell, 'execution_count', 1)}.py")
        script.write_text("\n" + cell)  # the magic's own line counts: lines are numbered as in the notebook
        words = ["run", *shlex.split(line), "--", sys.executable, str(script)]
        # Modules beside the notebook are found by the cell, as they are in others; not by the process that records it.
        command = own_process("holter.commands._cell", os.getcwd(), *words)
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environ, start_new_session=True, text=True, errors="replace",
        )  # fmt: skip
        strip = Strip(process.pid) if hasattr(shell, "kernel") else None
        try:
            _pass_on(process, sys.stdout)
        finally:
            if strip is not None:
                strip.close()
        shell.user_ns["_exit_code"] = process.returncode
    if process.returncode:
        raise CellFailed(process.returncode)


def _pass_on(process: subprocess.Popen[str], stream: TextIO) -> None:
    """Print what the cell prints, as it comes; an interrupt of the kernel is handed on, once more to kill."""
    assert process.stdout is not None
    interrupted = 0
    while True:
        try:
            for line in process.stdout:
                stream.write(line)
            process.wait()
            return
        except KeyboardInterrupt:
            interrupted += 1
            process.send_signal(signal.SIGINT if interrupted < 3 else signal.SIGTERM)


class Strip:
    """A line with two small charts above the output, kept up to date while the cell runs; where the page shows no HTML,
    the line alone."""

    def __init__(self, recorder: int) -> None:
        from IPython.display import display

        self._recorder = recorder
        self._folder: Path | None = None
        self._full: list[float] = []
        self._memory: list[float | None] = []
        self._loss: list[float | None] = []
        self._limit: float | None = None
        self._over = threading.Event()
        self._shown = display({"text/plain": "holter: starting"}, raw=True, display_id=True)
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Draw it for the last time."""
        self._over.set()
        self._thread.join(5)
        self._draw()

    def _keep(self) -> None:
        while not self._over.wait(_LOOKS_EVERY_S):
            self._draw()

    def _draw(self) -> None:
        try:
            self._folder = self._folder or _folder_of(self._recorder)
            if self._folder is not None:
                row = quick_row(self._folder)
                if row.get("full") is not None:
                    self._full = [*self._full, float(row["full"])][-_POINTS:]
                if row["live"]:
                    self._read(gauges_of(self._folder))
                curves = [
                    Curve("memory", _words(self._memory, size), self._memory, self._limit),
                    Curve("loss", _words(self._loss, lambda loss: f"{loss:.4g}"), self._loss, from_zero=False),
                ]
                shown = {
                    "text/plain": strip_words(row, self._full),
                    "text/html": mini_chart(strip_words(row, []), curves),
                }
                self._shown.update(shown, raw=True)
        except Exception:
            pass  # the strip is an extra: the cell goes on without it

    def _read(self, gauges: dict[str, float]) -> None:
        self._memory.append(gauges.get("memory_bytes"))
        self._loss.append(gauges.get("loss"))
        self._limit = gauges.get("memory_limit_bytes", self._limit)
        if len(self._memory) > _CHART_POINTS:
            self._memory, self._loss = self._memory[::2], self._loss[::2]


def _words(values: list[float | None], words: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return words(known[-1]) if known else ""


def strip_words(row: dict[str, Any], full: list[float]) -> str:
    """Where the run stands, in one line."""
    curve = f" {sparkline(full, 1.0)} {full[-1]:.0%} of its limit" if full else ""
    parts = [
        f"{row['id']} {row['kind']}",
        f"for {row['lasted']}" if row["live"] and row.get("lasted") else row.get("lasted", ""),
        f"step {row['step']}" if row.get("step") else "",
        f"memory {row['memory']}{curve}" if row.get("memory") else "",
        f"in {row['phase']}" if row["live"] and row.get("phase") else "",
        row.get("why", ""),
    ]
    return clean("holter: " + " · ".join(part for part in parts if part))


def _folder_of(recorder: int) -> Path | None:
    """The record that a recorder of ours is writing."""
    base = place.home()
    for run in reversed(place.run_ids(base)[-8:]):
        folder = place.runs_folder(base) / run
        try:
            if read_meta(folder).get("recorder_pid") == recorder:
                return folder
        except DamagedRecord:
            continue
    return None
