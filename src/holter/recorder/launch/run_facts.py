"""What is known of a run at its start: the content of record.json."""

from __future__ import annotations

import os
import platform
import socket
import time
from pathlib import Path
from typing import Any

from holter import __version__
from holter.facts.job import job_of
from holter.record import place
from holter.record.privacy import named_environment
from holter.record.reader import boot_id, start_time


def facts_of_run(folder: Path, command: list[str]) -> dict[str, Any]:
    """The facts that every record has; `command` is masked already."""
    return {
        "schema": place.SCHEMA,
        "id": folder.name,
        "command": command,
        "cwd": _working_folder(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "started": time.time(),
        "mono": time.monotonic(),
        "boot_id": boot_id(),
        "holter": __version__,
        "uid": os.getuid(),
        "recorder_pid": os.getpid(),
        "recorder_start": start_time(os.getpid()),
        "cpus": os.cpu_count(),
        "memory_total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "env": named_environment(),
        "job": job_of(os.environ) or None,
    }


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed under us; the command runs there all the same
        return None
