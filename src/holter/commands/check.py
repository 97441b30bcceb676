"""holter check: the known traps of a training script, before it runs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holter.errors import UsageError

if TYPE_CHECKING:
    from holter.check.problem import Checked
    from holter.check.settings import Settings


@click.command()
@click.option("--fix", is_flag=True, help="Repair in place what can be repaired with the same result.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="How to print the findings.",
)
@click.option("--select", metavar="CODES", help="Only these codes or names, such as HLT1,graph-kept.")
@click.option("--ignore", metavar="CODES", help="All but these codes or names.")
@click.argument("paths", metavar="PATH...", nargs=-1)
def command(fix: bool, diff: bool, form: str, select: str | None, ignore: str | None, paths: tuple[str, ...]) -> None:
    """Find what will halt or slow a training, by reading the scripts and notebooks at PATH.

    PATH is a file, a folder, or - for stdin. Settings are in [tool.holter.check] of pyproject.toml; a comment
    `# holter: ignore[CODE]` keeps a line quiet.

    Exits with 0 when nothing was found, 1 when something was, 2 when a path could not be read or the command line is
    wrong.
    """
    from holter.check.files import files_of
    from holter.check.problem import Checked, Unread
    from holter.check.workers import check_files
    from holter.views.plain import clean

    if not paths:
        raise UsageError("no path is given", "For example: holter check train.py")
    for path in paths:
        if path != "-" and not Path(path).exists() and not Path(path).is_symlink():
            raise UsageError(f"there is no {path}", "Give a file or a folder")
    on_disk = tuple(path for path in paths if path != "-")
    settings = _settings(on_disk, select, ignore)
    found = Checked()
    if "-" in paths:
        found.add(_stdin(settings, fix or diff))
    listed = list(files_of(on_disk, settings))
    found.unread += [one for one in listed if isinstance(one, Unread)]
    found.add(check_files([one for one in listed if isinstance(one, str)], settings, fix=fix or diff))
    if fix and not diff:
        _write(found, settings)
    # What is mended on stdin goes to stdout, as a filter's output; then the findings go beside it.
    piped = fix and not diff and "-" in paths
    for line in importlib.import_module(f"holter.check.formats.{'diff' if diff else form}").lines_of(found):
        stream = sys.stderr if piped else sys.stdout
        print(clean(line) if stream.isatty() else line, file=stream)  # a script may hold what moves the cursor
    for unread in found.unread:
        print(clean(f"holter: {unread.file}: {unread.why}"), file=sys.stderr)
    sys.exit(1 if found.problems or (diff and found.changes) else 2 if found.unread else 0)


def _settings(paths: tuple[str, ...], select: str | None, ignore: str | None) -> Settings:
    from dataclasses import replace

    from holter.check.ignores import matches
    from holter.check.rule import find_rules
    from holter.check.settings import find_settings

    first = Path(paths[0]).absolute() if paths else Path.cwd()
    settings = find_settings(first if first.is_dir() else first.parent)
    if select is not None:
        settings = replace(settings, select=_codes(select))
    if ignore is not None:
        settings = replace(settings, ignore=settings.ignore | _codes(ignore))
    for one in sorted(settings.select | settings.ignore):
        if not any(matches(rule.code, rule.name, frozenset({one})) for rule in find_rules()):
            raise UsageError(f"no rule is called {one!r}", "Codes and names are in docs/check.md")
    return settings


def _codes(text: str) -> frozenset[str]:
    return frozenset(one.strip() for one in text.split(",") if one.strip())


def _stdin(settings: Settings, fix: bool) -> Checked:
    from holter.check.engine import check_source
    from holter.check.problem import Change, Checked, Unread
    from holter.check.source import MAX_CODE, CanNotRead, parse_bytes

    raw = sys.stdin.buffer.read(MAX_CODE + 1)
    try:
        found = check_source(parse_bytes("-", raw), settings, fix=fix)
    except CanNotRead as error:
        found = Checked(1, [], [Unread("-", str(error))])
    if fix and not found.changes:
        found.changes.append(Change("-", raw, raw, 0))
    return found


def _write(found: Checked, settings: Settings) -> None:
    from holter.check.engine import check_source
    from holter.check.fixing import Unfixable, write_back
    from holter.check.problem import Unread
    from holter.check.source import parse_bytes

    for change in found.changes:
        if change.path == "-":
            sys.stdout.buffer.write(change.after)
            sys.stdout.buffer.flush()
            continue
        try:
            write_back(change)
        except Unfixable as error:
            found.unread.append(Unread(change.path, f"not changed: {error}"))
            found.fixed -= change.fixes
            found.problems = [one for one in found.problems if one.file != change.path]
            found.problems += check_source(parse_bytes(change.path, change.before), settings).problems
