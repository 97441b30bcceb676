"""What a Mac says of itself without root: its version, its chip, and the GPU in that."""

from __future__ import annotations

import platform
from typing import Any

from holter.errors import NoData
from holter.probes.memory_macos import LibSystem, Source


def system() -> str:
    """The version that the user knows, and the kernel."""
    return f"macOS {platform.mac_ver()[0]}, {platform.system()} {platform.release()}"


def container() -> str:
    """None: on a Mac a container is a Linux."""
    return ""


def cpu(source: Source | None = None) -> str:
    """The chip's name."""
    try:
        name = (source or LibSystem()).sysctl("machdep.cpu.brand_string")
    except OSError as error:
        raise NoData(f"the system does not tell the chip's name: {error.strerror}") from error
    return name.rstrip(b"\0").decode("utf-8", "replace")


def gpus(source: Source | None = None) -> list[dict[str, Any]]:
    """The chip's own, which shares the RAM; on a Mac with an Intel processor none that trains."""
    source = source or LibSystem()
    try:
        arm = source.sysctl("hw.optional.arm64")[:1] == b"\x01"  # also where this process is translated
    except OSError:
        arm = False
    return [{"name": cpu(source), "shared": True}] if arm else []


HINTS_FOR_GPU: dict[str, str] = {}
HINT_FOR_PTRACE = "on a Mac only root may: sudo holter attach PID"
