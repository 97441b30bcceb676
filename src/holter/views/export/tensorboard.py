"""TensorBoard: a run named `holter` beside the user's own, in the folder that the user's script writes to.

Which folder that is can be seen from outside. TensorFlow's writers and tensorboardX keep their file open; PyTorch's
opens it only to add to it, but has the process's number in its name. It is looked for below the folder in which the
command was started; a folder elsewhere has to be told. The file is written here, without the package: it need not be
installed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

from holter.views.export import Moment, News, Run
from holter.views.export._event_file import OURS, EventFile

WHERE = "the folder that TensorBoard is pointed at"

_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.(.*)")
_SPLITS = {"train", "training", "validation", "val", "eval", "test"}  # a fit writes each to a folder of its own
_SKIPPED = {"node_modules", "site-packages", "__pycache__", "wandb", "mlruns"}
_MAX_ENTRIES = 20_000  # entries of folders that one look goes through
_DEEPEST = 8
_WAITING = 2_000  # moments that are kept until the folder is known: some hours


class Exporter:
    """Writes scalars by step, and findings as texts."""

    def __init__(self, run: Run, report: Callable[[str], None]) -> None:
        self._run, self._report = run, report
        self._pids: set[int] = set()
        self._file: EventFile | None = None
        self._waiting: deque[Moment] = deque(maxlen=_WAITING)
        self._step = 0
        if run.where:
            self._open(Path(run.folder, os.path.expanduser(run.where)))

    def numbers(self, moment: Moment) -> None:
        self._pids.update(moment.pids)
        self._waiting.append(moment)
        if self._file is None and (folder := self._find()) is not None:
            self._open(folder)
        if self._file is None:
            return
        while self._waiting:
            one = self._waiting.popleft()
            self._step = one.step or 0
            for name, value in sorted(one.values.items()):
                if name != "step":  # it is the axis
                    self._file.scalar(f"holter/{name}", value, self._step, one.t)
        self._file.flush()

    def news(self, item: News) -> None:
        if self._file is not None:
            self._file.text(f"holter/{item.kind}", _markdown(item), self._step, item.t)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        else:
            self._report(
                f"no TensorBoard file of this run was found below {self._run.folder}. "
                "Name the folder that TensorBoard reads: --export tensorboard=FOLDER"
            )

    def _open(self, folder: Path) -> None:
        self._file = EventFile(folder / "holter", self._run.host, self._run.started)

    def _find(self) -> Path | None:
        """The folder of the run's first event file; of the splits of a fit the one that they share."""
        look = self._run.processes
        held = [Path(path) for pid in self._pids for path in look.open_files(pid)] if look is not None else []
        found = [path for path in held if self._is_new(path.name)]
        found = found or [
            path for path in below(self._run.folder) if self._is_new(path.name) and self._is_ours(path.name)
        ]
        # The first that was begun; of several of one second that nearest to the top.
        found.sort(key=lambda path: (path.name.split(".")[3], len(path.parts), str(path)))
        folder = found[0].parent if found else None
        return folder.parent if folder is not None and folder.name in _SPLITS else folder

    def _is_new(self, name: str) -> bool:
        """Begun in this run, and not by us: a TensorBoard that the script has started holds old files open as well."""
        match = _NAME.fullmatch(name)
        return match is not None and int(match[1]) >= int(self._run.started) and not name.endswith(OURS)

    def _is_ours(self, name: str) -> bool:
        """PyTorch and TensorFlow name a file for the second, the host and the process that began it."""
        match = _NAME.fullmatch(name)
        parts = match[2].removeprefix(self._run.host).split(".") if match is not None else []
        return bool({int(part) for part in parts if part.isdigit()} & self._pids)


def below(folder: str) -> list[Path]:
    """Event files below a folder: to a bounded depth, through a bounded number of entries, and through no links."""
    found: list[Path] = []
    seen = 0
    level = [folder]
    for _depth in range(_DEEPEST):
        deeper: list[str] = []
        for one in level:
            try:
                with os.scandir(one) as entries:
                    for entry in entries:
                        seen += 1
                        if seen > _MAX_ENTRIES:
                            return found
                        if entry.name.startswith("events.out.tfevents."):
                            found.append(Path(entry.path))
                        elif (
                            entry.is_dir(follow_symlinks=False) and entry.name[0] != "." and entry.name not in _SKIPPED
                        ):
                            deeper.append(entry.path)
            except OSError:
                continue
        level = deeper
    return found


def _markdown(item: News) -> str:
    """TensorBoard shows texts as Markdown; what a run says is shown as it is."""
    plain = re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", item.text)
    facts = [(name, str(value).replace("`", "'")) for name, value in item.facts.items() if value not in ("", None)]
    return "\n".join([plain, "", *(f"- {name}: `{words}`" for name, words in facts)]) if facts else plain
