"""What a machine gives a training, as text to be pasted into an issue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from holter.units import count, size
from holter.views.plain import clean, encodable, fold

_INDENT = 13
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
_FOLDERS = {"working": "working folder", "temporary": "temporary folder", "records": "Holter's records"}
_KINDS = {"virtual": "in a virtual environment", "conda": "of conda"}


def write_machine(found: Mapping[str, Any], stream: TextIO, *, width: int = 80) -> None:
    """Write the table; what could not be read says why."""
    known = "no_data" not in found["python"]  # else why is said once
    sections = (
        ("Holter", [found["holter"]]),
        ("System", [_system(found["system"])]),
        ("CPU", _cpu(found["cpu"])),
        ("Memory", _memory(found["memory"])),
        ("Limits", _limits(found["limits"])),
        ("Disk", (f"{_FOLDERS.get(name, name)}: {_free(disk)}" for name, disk in found["disk"].items())),
        ("GPU", _gpus(found["gpus"])),
        ("Python", [_python(found["python"])]),
        ("Frameworks", _frameworks(found["frameworks"]) if known else ()),
        ("Packages", [_packages(found["packages"])] if known else ()),
        ("Clashes", _clashes(found["clashes"]) if known else ()),
        ("Holter sees", map(_seen, found["visible"])),
        (
            "Variables",
            [f"{name}={value}" for name, value in found["variables"].items()] or ["none that matters is set"],
        ),
    )
    lines: list[str] = []
    for name, texts in sections:
        lead = f"{name:<{_INDENT}}"
        for text in texts:
            lines += fold(clean(text), max(40, min(width, 120)), lead, " " * (_INDENT + 2))
            lead = " " * _INDENT
    stream.write(encodable("\n".join(lines) + "\n", stream))


def _absent(value: Any) -> str:
    """`no data, because …`; empty for what was read."""
    return f"no data, because {value['no_data']}" if isinstance(value, dict) and "no_data" in value else ""


def _size(value: Any) -> str:
    return _absent(value) or (size(value) if isinstance(value, (int, float)) else "unlimited")


def _count(value: Any) -> str:
    return _absent(value) or (count(value) if isinstance(value, int) else "unlimited")


def _free(value: Mapping[str, Any]) -> str:
    return _absent(value) or f"{size(value['free'])} free of {size(value['total'])}"


def _system(system: Mapping[str, Any]) -> str:
    inside = f", in {system['container']}" if system["container"] else ""
    return f"{system['name']}, {system['machine']}{inside}"


def _cpu(cpu: Mapping[str, Any]) -> Iterator[str]:
    yield _absent(cpu["model"]) or cpu["model"]
    of = f"{cpu['cores']} cores" if cpu["cores"] else "an unknown number of cores"
    bounds = []
    if cpu["affinity"] != cpu["cores"]:
        bounds.append(f"it is bound to {cpu['affinity']} of them")
    if cpu["quota"]:
        bounds.append(f"the container's quota is worth {cpu['quota']:g}")
    usable = "no data on how many may be used" if cpu["usable"] is None else f"{cpu['usable']:g} of them may be used"
    yield f"{of}; {usable}" + (f": {', '.join(bounds)}" if bounds else "")


def _memory(memory: Mapping[str, Any]) -> Iterator[str]:
    yield _pair("RAM", memory["total"], memory["available"], "available")
    swap = memory["swap_total"]
    yield "swap: none" if swap == 0 else _pair("swap", swap, memory["swap_free"], "free")
    container = memory["container"]
    yield (
        _pair("the container's limit", container["limit"], container["left"], "left")
        if container
        else ("no container's limit below the RAM")
    )
    shm = memory["shm"]
    yield f"/dev/shm: {_absent(shm)}" if "no_data" in shm else _pair("/dev/shm", shm["total"], shm["free"], "free")


def _pair(what: str, total: Any, rest: Any, of: str) -> str:
    return f"{what}: {_size(total)}" + ("" if _absent(total) else f", {_size(rest)} {of}")


def _limits(limits: Mapping[str, Any]) -> Iterator[str]:
    yield f"open files: {_count(limits['open_files'])}"
    yield f"processes of this user: {_count(limits['processes'])}"
    if limits["address_space"] is not None and not _absent(limits["address_space"]):
        yield f"address space: {_size(limits['address_space'])}"
    tasks = limits["tasks"]
    now = f", {count(tasks['now'])} now" if isinstance(tasks.get("now"), int) else ""
    yield f"processes and threads of the container: {_absent(tasks) or _count(tasks['limit']) + now}"


def _gpus(gpus: Mapping[str, Any]) -> Iterator[str]:
    if "no_data" in gpus:
        yield _absent(gpus)
        return
    for gpu in gpus["list"]:
        name = gpu["name"] if isinstance(gpu["name"], str) else "a GPU"
        if gpu.get("shared"):
            yield f"{name}: it shares the RAM with the CPU"
        elif isinstance(gpu["total"], int):
            free = f", {size(gpu['free'])} free" if isinstance(gpu["free"], int) else ""
            yield f"{name}: {size(gpu['total'])}{free}"
        else:
            yield f"{name}: no data on its memory, because the driver does not tell it"
    if "driver" in gpus:
        newest = f", runs CUDA {gpus['cuda']} at most" if gpus["cuda"] else ""
        yield f"driver: {_absent(gpus['driver']) or gpus['driver']}{newest}"


def _python(python: Mapping[str, Any]) -> str:
    if "no_data" in python:
        return f"{python['path']}: {_absent(python)}" if "path" in python else _absent(python)
    kind = f" {_KINDS[python['environment']]}" if python["environment"] in _KINDS else ""
    made = f"{python['implementation']}, {python['machine']}, {python['bits']} bit"
    translated = "; made for Intel, and runs translated (Rosetta)" if python["translated"] else ""
    return f"{python['version']} ({made}){kind}: {python['path']}{translated}"


def _frameworks(frameworks: Mapping[str, Any]) -> Iterator[str]:
    if "no_data" in frameworks:
        yield _absent(frameworks)
        return
    for name, found in frameworks.items():
        if "no_data" in found:
            yield f"{_NAMES[name]}: {_absent(found)}"
        elif found["device"]:
            many = f", {count(found['count'])} of them" if found["count"] > 1 else ""
            most = f", up to {size(found['most'])} of the RAM" if "most" in found else ""
            yield f"{_NAMES[name]} {found['version']} (built for {found['built_for']}): {found['device']}{many}{most}"
        else:
            do = f". Try: {found['do']}" if found["do"] else ""
            yield f"{_NAMES[name]} {found['version']}: CPU only, because {found['because']}{do}"
    if not frameworks:
        yield "neither PyTorch nor TensorFlow is installed in this Python"


def _packages(packages: Mapping[str, Any]) -> str:
    if "no_data" in packages:
        return _absent(packages)
    return ", ".join(f"{name} {version}" for name, version in packages.items()) or "none that trains"


def _clashes(clashes: Any) -> Iterator[str]:
    if isinstance(clashes, dict):
        yield _absent(clashes)
        return
    for one in clashes:
        there = f"{one['found']} is installed" if one["found"] else "it is not installed"
        yield f"{one['package']} {one['version']} needs {one['needs']}: {there}. Try: pip install '{one['needs']}'"
    if not clashes:
        yield "none among these packages"


def _seen(one: Mapping[str, Any]) -> str:
    return f"{one['what']}: {'yes' if one['seen'] else 'no, because ' + one['because']}"
