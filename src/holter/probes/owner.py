"""Whose process it is: its name, the first words of its command with secrets masked, and its user."""

from __future__ import annotations

import os

from holter.record.privacy import mask_command

_WORDS = 3  # of a command line: the program, its script, and one more
_MAX_CHARACTERS = 120


def owner_of(pid: int, proc: str = "/proc") -> dict[str, str]:
    """`name`, `command` and `user`, as far as they can be seen; nothing of a process that is gone."""
    found: dict[str, str] = {}
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            found["name"] = file.read(64).strip()
        with open(f"{proc}/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            words = [word for word in file.read(2048).split("\0") if word]
        if words:
            found["command"] = " ".join(mask_command([os.path.basename(words[0]), *words[1:_WORDS]]))[:_MAX_CHARACTERS]
        import pwd

        found["user"] = pwd.getpwuid(os.stat(f"{proc}/{pid}").st_uid).pw_name
    except (OSError, KeyError, ImportError):
        pass
    return found
