"""Puts the chart library into what is built: uPlot, by its pinned version and the hashes of its files.

Nothing of others' lies in the repository. A wheel and a source archive carry the library, so that neither they nor the
pages they serve ever ask the network. A build from a clone takes it once (51 KB) from npm where that is installed, else
from uPlot's own repository; without a network put the archive `uplot-1.6.32.tgz` beside this file. Where it can't be
had the build goes on, and the pages show figures in place of charts and say why.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VERSION = "1.6.32"
ARCHIVE = f"uplot-{VERSION}.tgz"
SOURCE = f"https://github.com/leeoniya/uPlot/raw/{VERSION}/"
ROOT = Path(__file__).resolve().parent
TARGET = ROOT / "src" / "holter" / "views" / "web" / "uplot"
FILES = {
    "dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


class ChartLibrary(BuildHookInterface[Any]):
    """Runs before every build, the editable one too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        try:
            place()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"built without charts: uPlot could not be had: {error}")
        build_data["artifacts"].append("/src/holter/views/web/uplot/*")


def place() -> None:
    """Write the library's files, unless they are there already; all of them or none."""
    if all(is_right(TARGET / Path(name).name, name) for name in FILES):
        return
    read = reader()
    found = {name: read(name) for name in FILES}
    for name, raw in found.items():
        if hash_of(raw) != FILES[name]:
            raise ValueError(f"{name} has the hash {hash_of(raw)}, not the pinned one")
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, raw in found.items():
        (TARGET / Path(name).name).write_bytes(raw)


def reader() -> Callable[[str], bytes]:
    """What gives the bytes of a file of the package: an archive beside this file, npm, or uPlot's repository."""
    beside, npm = ROOT / ARCHIVE, shutil.which("npm")
    if beside.is_file():
        return from_archive(beside.read_bytes())
    if npm is not None:
        with tempfile.TemporaryDirectory() as folder:
            command = [npm, "pack", "--silent", f"uplot@{VERSION}"]
            packed = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
            if packed.returncode == 0:
                return from_archive((Path(folder) / ARCHIVE).read_bytes())
    return from_repository


def from_archive(raw: bytes) -> Callable[[str], bytes]:
    try:
        archive = tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz")  # noqa: SIM115 - read from as long as the build lasts
    except tarfile.TarError as error:
        raise ValueError(f"{ARCHIVE} is no archive: {error}") from None

    def read(name: str) -> bytes:
        try:
            member = archive.extractfile(f"package/{name}")
        except KeyError:
            member = None
        if member is None:
            raise ValueError(f"{ARCHIVE} holds no {name}")
        return member.read()

    return read


def from_repository(name: str) -> bytes:
    with urllib.request.urlopen(SOURCE + name, timeout=30) as answer:
        raw: bytes = answer.read(4 << 20)
        return raw


def is_right(path: Path, name: str) -> bool:
    return path.is_file() and hash_of(path.read_bytes()) == FILES[name]


def hash_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
