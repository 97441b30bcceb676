"""Notices on a Linux desktop: notify-send, which comes with libnotify."""

from __future__ import annotations

import shutil


def command(title: str, text: str) -> list[str]:
    """What shows a notice; the text is never taken for an option."""
    program = shutil.which("notify-send")
    if program is None:
        raise OSError("there is no notify-send here: install libnotify, or give a URL with --notify=URL")
    return [program, "--app-name=Holter", "--", title, text]
