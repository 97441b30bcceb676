"""`[tool.holter.check]` of the nearest pyproject.toml."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from holter.check.ignores import matches
from holter.check.source import CanNotRead, read_regular
from holter.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MOST_BYTES = 4_000_000
_LISTS = ("select", "ignore", "exclude")
# Folders of other people's code, of builds and of caches; a path that is named on the command line is always read.
SKIPPED = frozenset(
    "__pycache__ __pypackages__ _build build buck-out dist node_modules site-packages venv env".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Settings:
    """What to look for, and where."""

    select: frozenset[str] = frozenset({"ALL"})
    ignore: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()
    per_file: dict[str, frozenset[str]] = field(default_factory=dict)
    root: Path = field(default_factory=Path)

    def wants(self, code: str, name: str, file: str) -> bool:
        if not matches(code, name, self.select) or matches(code, name, self.ignore):
            return False
        return not any(self._fits(file, glob) and matches(code, name, codes) for glob, codes in self.per_file.items())

    def excludes(self, path: str) -> bool:
        return any(self._fits(path, glob) for glob in self.exclude)

    def _fits(self, path: str, glob: str) -> bool:
        """Whether a path, a folder above it, or its name fits a pattern that is relative to the pyproject.toml."""
        whole = Path(path).absolute()
        try:
            inside = whole.relative_to(self.root.absolute())
        except ValueError:
            inside = whole
        places = [inside, *inside.parents][:-1] or [inside]
        return any(fnmatch(one.as_posix(), glob.rstrip("/")) or fnmatch(one.name, glob.rstrip("/")) for one in places)


def find_settings(start: Path) -> Settings:
    """Read the nearest pyproject.toml that has our table, from a folder up."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            table = _table(path)
            if table is not None:
                return _settings(table, path)
    return Settings()


def _table(path: Path) -> dict[str, Any] | None:
    try:
        text = read_regular(str(path), _MOST_BYTES).decode("utf-8", "replace")
    except CanNotRead as error:
        raise UsageError(f"{path} can't be read: {error}") from None
    if "holter" not in text:
        return None
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    table: Any = whole
    for name in ("tool", "holter", "check"):
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def _settings(table: dict[str, Any], path: Path) -> Settings:
    unknown = sorted(set(table) - {*_LISTS, "per-file-ignores"})
    if unknown:
        known = ", ".join((*_LISTS, "per-file-ignores"))
        raise UsageError(f"{path}: [tool.holter.check] has no setting {unknown[0]!r}", f"It knows {known}")
    for name in _LISTS:
        value = table.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"{path}: {name} of [tool.holter.check] must be a list of strings")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict) or not all(isinstance(one, list) for one in per_file.values()):
        raise UsageError(f"{path}: per-file-ignores of [tool.holter.check] must be a table of lists")
    return Settings(
        frozenset(table.get("select", ["ALL"])),
        frozenset(table.get("ignore", [])),
        tuple(table.get("exclude", [])),
        {glob: frozenset(codes) for glob, codes in per_file.items()},
        path.parent,
    )
