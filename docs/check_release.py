"""What must hold before a release: `check_release.py v0.1.0` for the tree, `--built dist` for what was built.

Everything that does not hold is printed, with exit code 1.
"""

from __future__ import annotations

import email
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_WHEEL_BYTES = 1_200_000
MAX_BASE_PACKAGES = 4  # Holter itself and what it brings along, on any one system
_CHARTS = ("holter/views/web/uplot/uPlot.iife.min.js", "holter/views/web/uplot/uPlot.min.css")


def faults_of_the_tree(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Version, tag and changelog agree."""
    version = _found(r'^version = "([^"]+)"', root / "pyproject.toml")
    inside = _found(r'^__version__ = "([^"]+)"', root / "src" / "holter" / "__init__.py")
    if version != inside:
        yield f"pyproject.toml says {version}, holter.__version__ says {inside}"
    if tag != f"v{version}":
        yield f"the tag is {tag}, the version {version}"
    heading = _found(rf"^## ({re.escape(version)}\b.*)$", root / "CHANGELOG.md")
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        yield f"CHANGELOG.md has no date for {version}: it says {heading!r}"


def faults_of_the_files(folder: Path) -> Iterator[str]:
    """One wheel and one source archive, small enough, with charts, tests left out and few packages needed."""
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        yield f"{folder} holds {len(wheels)} wheels and {len(archives)} source archives, not one of each"
        return
    wheel, archive = wheels[0], archives[0]
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        yield f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {MAX_WHEEL_BYTES:,}"
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        metadata = email.message_from_bytes(files.read(next(name for name in names if name.endswith("/METADATA"))))
    yield from (f"{wheel.name} has no {name}: its web page has no charts" for name in _CHARTS if name not in names)
    yield from (f"{wheel.name} holds {name}" for name in names if not name.startswith(("holter/", "holter-")))
    if "holter/py.typed" not in names:
        yield f"{wheel.name} has no py.typed"
    most = max(len(needs) for needs in needed_by_system(metadata.get_all("Requires-Dist") or []).values()) + 1
    if most > MAX_BASE_PACKAGES:
        yield f"a base install takes {most} packages, more than {MAX_BASE_PACKAGES}"
    with tarfile.open(archive) as source:
        kept = {name.partition("/")[2] for name in source.getnames()}
    wanted = {"pyproject.toml", "LICENSE", "README.md", "hatch_build.py"}
    yield from (f"{archive.name} has no {name}" for name in sorted(wanted - kept))


def needed_by_system(lines: list[str]) -> dict[str, list[str]]:
    """What a base install takes on each system, by the markers of the requirements; none of them needs another."""
    base = [line for line in lines if "extra ==" not in line]
    return {
        system: [line for line in base if "sys_platform" not in line or f"'{system}'" in line]
        for system in ("linux", "darwin")
    }


def _found(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    built = sys.argv[1:2] == ["--built"]
    faults = list(faults_of_the_files(Path(sys.argv[2])) if built else faults_of_the_tree(sys.argv[1]))
    print("\n".join(faults) or "all holds")
    sys.exit(1 if faults else 0)
