"""What a Linux says of itself: its name, its CPU, and whether it is a container."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

from holter.errors import NoData


def system(root: str = "") -> str:
    """The distribution's own name, and the kernel."""
    try:
        with open(f"{root}/etc/os-release", encoding="utf-8", errors="replace") as file:
            found = re.search(r'^PRETTY_NAME="?([^"\n]{1,100})', file.read(20_000), re.M)
    except OSError:
        found = None
    kernel = f"{platform.system()} {platform.release()}"
    return f"{found[1]}, {kernel}" if found else kernel


def container(root: str = "") -> str:
    """What makes this a container; empty where nothing says that it is one."""
    if "microsoft" in platform.release().lower():
        return "WSL"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes"
    if os.path.exists(f"{root}/.dockerenv"):
        return "Docker"
    return "Podman" if os.path.exists(f"{root}/run/.containerenv") else ""


def cpu(proc: str = "/proc") -> str:
    """The model's name; the kernel tells none of most ARM machines."""
    try:
        with open(f"{proc}/cpuinfo", encoding="utf-8", errors="replace") as file:
            found = re.search(r"^(?:model name|Model|cpu model|cpu)\s*: (.{1,100})$", file.read(100_000), re.M)
    except OSError as error:
        raise NoData(f"{proc}/cpuinfo could not be read: {error.strerror}") from error
    if found is None:
        raise NoData(f"the kernel tells no name of a CPU of kind {platform.machine()}")
    return found[1].strip()


def gpus() -> list[dict[str, Any]]:
    """None that the kernel tells of by itself."""
    return []


# By what `container` gives: how the machine's GPU comes into it.
HINTS_FOR_GPU = {
    "Docker": "docker run --gpus all",
    "Podman": "podman run --device nvidia.com/gpu=all",
    "Kubernetes": "a limit of nvidia.com/gpu in the pod",
}
HINT_FOR_PTRACE = "in a container: --cap-add SYS_PTRACE; elsewhere: sudo sysctl kernel.yama.ptrace_scope=0"
