"""Which files a path stands for."""

from __future__ import annotations

import os
from collections.abc import Iterator

from holter.check.problem import Unread
from holter.check.settings import SKIPPED, Settings

ENDINGS = (".py", ".ipynb")


def files_of(paths: tuple[str, ...], settings: Settings) -> Iterator[str | Unread]:
    """Give every script and notebook below some paths, in order, each once; what is in the way is told."""
    seen: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            found = _walk(path, settings, (os.path.realpath(path),))
        else:
            found = iter([path])
        for one in found:
            if isinstance(one, Unread):
                yield one
                continue
            real = os.path.realpath(one)
            if real not in seen:
                seen.add(real)
                yield one


def _walk(folder: str, settings: Settings, above: tuple[str, ...]) -> Iterator[str | Unread]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Unread(folder, (error.strerror or str(error)).lower())
        return
    for entry in entries:
        name, path = entry.name, entry.path
        if name.startswith(".") or settings.excludes(path):
            continue
        try:
            is_folder = entry.is_dir()
        except OSError as error:
            yield Unread(path, (error.strerror or str(error)).lower())
            continue
        if not is_folder:
            # A link that leads round in a circle is neither a file nor a folder.
            if name.endswith(ENDINGS) and (entry.is_file() or entry.is_symlink()):
                yield os.path.normpath(path) if folder == "." else path
            continue
        if name in SKIPPED:
            continue
        real = os.path.realpath(path)
        if real in above:
            yield Unread(path, f"the link leads back to {real}, which is already being read")
            continue
        yield from _walk(path, settings, (*above, real))
