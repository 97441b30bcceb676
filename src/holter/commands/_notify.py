"""What `holter run --notify` tells, and in which words: what is told while the run is on, and how it fell ill."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holter.errors import UsageError
from holter.recorder.launch.notice import Notices

_MAX_LETTERS = 3000  # of a message: ntfy makes a file of what is longer than 4 KB


class _Address(NamedTuple):
    """Where a notice goes, and in whose form: ours, Slack's (Mattermost takes it too) or ntfy's."""

    url: str | None
    form: str = ""
    topic: str = ""


def _address_of(where: str) -> _Address:
    """`slack+https://...` and `ntfy+https://host/topic` name their form; the services' own hosts need no word."""
    if where == "desktop":
        return _Address(None)
    form, plus, url = where.partition("+")
    if not plus or form not in ("slack", "ntfy"):
        form, url = "", where
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"--notify={where} is not an address", "Use --notify alone, or --notify=https://...")
    form = form or {"hooks.slack.com": "slack", "ntfy.sh": "ntfy"}.get(parts.hostname or "", "")
    if form != "ntfy":
        return _Address(url, form)
    # ntfy takes JSON at its root only: to the topic's own address it would be the text of the message.
    folder, _, topic = parts.path.rstrip("/").rpartition("/")
    if not topic:
        raise UsageError(f"--notify={where} names no topic", "For example: --notify=ntfy+https://HOST/TOPIC")
    return _Address(f"{parts.scheme}://{parts.netloc}{folder}/", form, topic)


class Notify:
    """Notices of one run, with secrets masked."""

    def __init__(self, where: str, name: str | None, words: tuple[str, ...], report: Callable[[str], None]) -> None:
        self._address = _address_of(where)
        self._notices = Notices(self._address.url)
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
        self._notices.send(self._shaped(mask(notice)))

    def _shaped(self, notice: dict[str, Any]) -> dict[str, Any]:
        """The notice as its addressee reads it."""
        run, text = notice["run"], str(notice["text"])[:_MAX_LETTERS]
        if self._address.form == "slack":
            for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
                text = text.replace(sign, written)  # else it could call someone, or hide an address behind a word
            return {"text": f"Holter on {run['host']}: {text}"}
        if self._address.form == "ntfy":
            title = f"Holter: {run['name'] or run['command']}"[:200]
            urgent = 4 if notice["kind"] == "ended" else 3
            return {"topic": self._address.topic, "title": title, "message": text, "priority": urgent}
        return notice


def _command(words: tuple[str, ...]) -> str:
    from holter.record.privacy import mask_command

    return shlex.join(mask_command(list(words)))
