"""One look at what this machine, container and interpreter give a training.

What could not be read is `{"no_data": "because …"}`, and what has no limit is null.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holter import __version__
from holter.errors import NoData
from holter.facts import host_memory
from holter.machine import interpreter
from holter.machine.visible import visible
from holter.probes import probes_here
from holter.probes.aside import Aside, Late
from holter.probes.nvidia import Nvidia, driver_version
from holter.probes.probe import Reading, Tree
from holter.record import place
from holter.record.privacy import named_environment
from holter.recorder.platform import here

SCHEMA = 1
_PROBES = ("memory", "cgroup", "shm", "rlimits", "pressure", "nvidia", "apple", "proportional")
_PATIENCE = 10.0  # seconds for a driver, or a file system behind a network

Readings = Mapping[str, "Reading | NoData"]


def look(python: str | None = None) -> dict[str, Any]:
    """The whole table."""
    chosen = _or_no_data(lambda: {"path": interpreter.find_python(python)})  # first: a wrong path is told at once
    readings = read_probes()
    system = here("system", "machine")
    nvidia, inside = readings["nvidia"], system.container()
    if isinstance(nvidia, NoData) and inside in system.HINTS_FOR_GPU:
        readings["nvidia"] = NoData(f"{nvidia} (if the machine has one: {system.HINTS_FOR_GPU[inside]})")
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "holter": __version__,
        "system": {"name": system.system(), "machine": platform.machine(), "container": inside},
        "cpu": _cpu(system, readings),
        "memory": _memory(readings),
        "limits": _limits(readings),
        "disk": {name: _or_no_data(partial(_disk, find)) for name, find in _FOLDERS.items()},
        "gpus": _gpus(system, readings),
    }
    found.update(_interpreter(chosen, found["gpus"]), visible=visible(readings), variables=named_environment())
    return dict(_without_user(found))


def _without_user(value: Any) -> Any:
    """The same without the user's home, and without the user's name in any path."""
    if isinstance(value, str) and "/" in value:
        home, name = os.path.expanduser("~"), os.path.basename(os.path.expanduser("~"))
        value = value.replace(f"{home}/", "~/") if len(home) > 1 else value
        names = {name, os.environ.get("USER"), os.environ.get("LOGNAME")} - {"", "root", None}
        return "/".join("***" if part in names else part for part in value.split("/"))
    if isinstance(value, dict):
        return {key: _without_user(one) for key, one in value.items()}
    return [_without_user(one) for one in value] if isinstance(value, list) else value


def read_probes() -> dict[str, Reading | NoData]:
    """Each of the probes once, of this process; the reason where there is nothing to read."""
    tree = Tree(os.getpid(), [os.getpid()])
    found: dict[str, Reading | NoData] = {}
    for probe in probes_here():
        if probe.name in _PROBES:
            try:
                found[probe.name] = (Nvidia(patience=_PATIENCE) if probe.name == "nvidia" else probe).read(tree)
            except NoData as absent:
                found[probe.name] = absent
            except Exception as error:
                found[probe.name] = NoData(f"the probe failed: {type(error).__name__}: {error}")
    system = "macOS" if platform.system() == "Darwin" else platform.system()
    return {name: found.get(name, NoData(f"{system} has none")) for name in _PROBES}


def _or_no_data(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except NoData as absent:
        return {"no_data": str(absent)}


def _field(reading: Reading | NoData, name: str) -> Any:
    """One figure of a reading."""
    if isinstance(reading, NoData):
        return {"no_data": str(reading)}
    return reading.get(name, {"no_data": "the system does not tell it"})


def _cpu(system: Any, readings: Readings) -> dict[str, Any]:
    cores, cgroup = os.cpu_count(), readings["cgroup"]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = None if isinstance(cgroup, NoData) else cgroup.get("cpu_limit")
    known = [float(number) for number in (allowed, quota) if number]
    return {
        "model": _or_no_data(system.cpu),
        "cores": cores,
        "affinity": allowed,
        "quota": quota,
        "usable": min(known) if known else None,
    }


def _memory(readings: Readings) -> dict[str, Any]:
    memory, shm = readings["memory"], readings["shm"]
    names = ("total", "available", "swap_total", "swap_free")
    found = {name: _field(memory, name) for name in names}
    # A limit above the RAM is none: the RAM is met before it.
    ram = found["total"] if isinstance(found["total"], int) else 1 << 60
    bounds = [bound for bound in host_memory.bounds() if bound[0] < ram]
    nearest = min(bounds, key=lambda bound: bound[1], default=None)
    found["container"] = {"limit": nearest[0], "left": nearest[1]} if nearest else None
    found["shm"] = {name: _field(shm, name) for name in ("total", "free")} if not isinstance(shm, NoData) else _why(shm)
    return found


def _why(absent: NoData) -> dict[str, str]:
    return {"no_data": str(absent)}


def _limits(readings: Readings) -> dict[str, Any]:
    limits, cgroup = readings["rlimits"], readings["cgroup"]
    names = {"open_files": "nofile", "processes": "nproc", "address_space": "as"}
    found: dict[str, Any] = {
        said: _why(limits) if isinstance(limits, NoData) else limits.get(name) for said, name in names.items()
    }
    if isinstance(cgroup, NoData):
        found["tasks"] = _why(cgroup)
    elif "pids" not in cgroup:
        found["tasks"] = {"no_data": "no control group counts them here"}
    else:
        found["tasks"] = {"limit": cgroup.get("pids_limit"), "now": cgroup.get("pids")}
    return found


_FOLDERS: dict[str, Callable[[], Path]] = {
    "working": Path.cwd,
    "temporary": lambda: Path(tempfile.gettempdir()),
    "records": place.home,
}


def _disk(find: Callable[[], Path]) -> dict[str, int]:
    """Of the file system that holds a folder, or will hold it once it is made."""
    try:
        path = find()
        while not path.exists() and path != path.parent:
            path = path.parent
        found = Aside[os.statvfs_result]().ask(lambda: os.statvfs(path), _PATIENCE)
    except Late as late:
        raise NoData(f"the file system has not answered for {late.waited:.0f} s") from None
    except OSError as error:
        raise NoData(f"it could not be read: {error.strerror}") from error
    return {"free": found.f_bavail * found.f_frsize, "total": found.f_blocks * found.f_frsize}


def _gpus(system: Any, readings: Readings) -> dict[str, Any]:
    """`list` with name, total and free; of a Mac `shared`, since CPU and GPU have one memory."""
    nvidia, own = readings["nvidia"], system.gpus()
    if own:
        return {"list": own}
    if isinstance(nvidia, NoData):
        return _why(nvidia)
    rows = []
    for row in nvidia.get("list", ()):
        total, used = row.get("total"), row.get("used")
        known = isinstance(total, int) and isinstance(used, int)
        rows.append({"name": row.get("name", ""), "total": total, "free": total - used if known else None})
    return {"list": rows, "driver": _or_no_data(driver_version), "cuda": nvidia.get("cuda", "")}


def _interpreter(chosen: dict[str, Any], gpus: dict[str, Any]) -> dict[str, Any]:
    """`python`, `packages`, `clashes` and `frameworks`."""
    if "no_data" in chosen:
        return dict.fromkeys(("python", "packages", "clashes", "frameworks"), chosen)
    path = chosen["path"]
    said = _or_no_data(lambda: interpreter.packages(path))
    if "no_data" in said:
        return {"python": {**chosen, **said}, **dict.fromkeys(("packages", "clashes", "frameworks"), said)}
    known = ("version", "implementation", "machine", "bits", "translated", "environment")
    rows = gpus.get("list") or []
    gpu = {
        "there": rows[0]["name"] if rows else "",
        "driver": gpus.get("cuda", ""),
        "translated": said["translated"],
        "apple": any(row.get("shared") for row in rows),
    }
    frameworks = {
        name: _or_no_data(partial(interpreter.framework, path, name, gpu))
        for name, distributions in interpreter.FRAMEWORKS.items()
        if any(one in said["packages"] for one in distributions)
    }
    return {
        "python": {"path": said["executable"] or path, **{name: said[name] for name in known}},
        "packages": said["packages"],
        "clashes": {"no_data": said["clashes_unknown"]} if said["clashes_unknown"] else said["clashes"],
        "frameworks": frameworks,
    }
