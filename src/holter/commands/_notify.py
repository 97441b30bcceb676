"""What `holter run --notify` tells, and in which words: what is told while the run is on, and how it fell ill."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holter.errors import UsageError
from holter.recorder.launch.notice import Notices


class Notify:
    """Notices of one run, with secrets masked."""

    def __init__(self, where: str, name: str | None, words: tuple[str, ...], report: Callable[[str], None]) -> None:
        if where != "desktop" and not where.startswith(("http://", "https://")):
            raise UsageError(f"--notify={where} is not an address", "Use --notify alone, or --notify=https://...")
        self._notices = Notices(None if where == "desktop" else where)
        self._run: dict[str, Any] = {
            "id": "",
            "name": name or "",
            "command": _command(words),
            "host": os.uname().nodename,
        }
        self._report = report

    def reported(self, text: str) -> None:
        """A line as it was said on stderr."""
        self._send("told", text)

    def ended(self, folder: Path) -> None:
        """The verdict, unless the run is healthy; then wait a moment for what is on its way."""
        from holter.diagnosis.core.doctor import verdict
        from holter.record.reader import open_record

        found = verdict(open_record(folder))
        self._run["id"] = folder.name
        if not found.healthy:
            verdict_json = found.as_json()
            first = verdict_json["findings"][0] if verdict_json["findings"] else None
            claim = found.ending.claim.removeprefix("The run ")
            text = f"{self._run['command']} {claim}" + (f". {found.findings[0].claim}" if found.findings else "")
            self._send("ended", text, ending=verdict_json["ending"], finding=first)
        self._notices.close()
        if self._notices.failed:
            self._report(f"a notice could not be sent: {self._notices.failed}")

    def _send(self, kind: str, text: str, **more: Any) -> None:
        from holter.figures.document import mask

        notice = {"schema": 1, "kind": kind, "text": text, "run": self._run, "ending": None, "finding": None, **more}
        self._notices.send(mask(notice))


def _command(words: tuple[str, ...]) -> str:
    from holter.record.privacy import mask_command

    return shlex.join(mask_command(list(words)))
