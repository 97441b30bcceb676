"""Notices on a Mac: osascript, which is always there."""

from __future__ import annotations

# The words come as arguments: nothing in them can become part of the script.
_SCRIPT = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"


def command(title: str, text: str) -> list[str]:
    """What shows a notice."""
    return ["osascript", "-e", _SCRIPT, title, text]
