"""Why a Python process has no agent in it, as far as its command line and environment tell."""

from __future__ import annotations

import re
from pathlib import Path

from holter.recorder.launch.run_dir import INJECT

_FLAGS = {
    "S": "Python was started with -S, which keeps sitecustomize out",
    "I": "Python was started with -I, which shuts the environment out",
    "E": "Python was started with -E, which ignores PYTHONPATH",
}


def why_no_agent(pid: int, command: list[str], agent_dir: Path | None) -> str:
    """The reason in words; empty when the process is gone meanwhile."""
    if agent_dir is None:
        return "no folder could be made for the agent"
    because = flag_that_shuts_out(command)
    if because:
        return because
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        return "the process runs as another user, or was given more rights"
    except OSError:
        return ""
    # Only the one variable is looked at, and only for whether our folder is in it.
    path = re.search(rb"(?:^|\0)PYTHONPATH=([^\0]*)", environ)
    if path is None or str(INJECT).encode() not in path.group(1):
        return "PYTHONPATH was replaced on the way, so the agent was not found"
    return "the interpreter does not run sitecustomize, or is older than Python 3.9"


def flag_that_shuts_out(command: list[str]) -> str:
    """Which of -S, -I and -E stands among the interpreter's own options, also in a bunch such as -uE."""
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return ""
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(words, None)
            continue
        for at, letter in enumerate(word[1:], 1):
            if letter in _FLAGS:
                return _FLAGS[letter]
            if letter in "cm":
                return ""  # what follows is the program's
            if letter in "WX":
                if at == len(word) - 1:
                    next(words, None)
                break  # the rest of the word is its value
    return ""
