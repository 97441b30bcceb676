"""holter check: the known traps of a training script, before it runs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

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
@click.option("--explain", metavar="CODE", help="Print the page of one rule, by its code or name, and check nothing.")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
@click.option("--no-cache", is_flag=True, help="Read every file, also those that did not change since the last check.")
@click.argument("paths", metavar="PATH...", nargs=-1)
def command(
    fix: bool,
    diff: bool,
    form: str,
    select: str | None,
    ignore: str | None,
    explain: str | None,
    watch: bool,
    no_cache: bool,
    paths: tuple[str, ...],
) -> None:
    """Find what will halt or slow a training, by reading the scripts and notebooks at PATH.

    PATH is a file, a folder, or - for stdin. Settings are in [tool.holter.check] of pyproject.toml; a comment
    `# holter: ignore[CODE]` keeps a line quiet.

    Exits with 0 when nothing was found, 1 when something was, 2 when a path could not be read or the command line is
    wrong. With --watch, Ctrl-C is the way to end it, and gives 0.
    """
    if explain is not None:
        _explain(explain)
        return
    if not paths:
        raise UsageError("no path is given", "For example: holter check train.py")
    for path in paths:
        if path != "-" and not Path(path).exists() and not Path(path).is_symlink():
            raise UsageError(f"there is no {path}", "Give a file or a folder")
    if watch and (fix or diff or "-" in paths):
        raise UsageError("--watch only looks, at files", "Leave out --fix, --diff and -")
    asked = _Asked(paths, select, ignore, fix, diff, form, not no_cache)
    if watch:
        _watch(asked)
    else:
        sys.exit(_check(asked))


class _Asked(NamedTuple):
    """The command line."""

    paths: tuple[str, ...]
    select: str | None
    ignore: str | None
    fix: bool
    diff: bool
    form: str
    cached: bool

    @property
    def on_disk(self) -> tuple[str, ...]:
        return tuple(path for path in self.paths if path != "-")

    def settings(self) -> Settings:
        return _settings(self.on_disk, self.select, self.ignore)


def _check(asked: _Asked) -> int:
    """Check once and print what was found; give the exit code."""
    from holter.check.cache import cache_folder
    from holter.check.files import files_of
    from holter.check.problem import Checked, Unread
    from holter.check.workers import check_files
    from holter.views.plain import clean

    mends = asked.fix or asked.diff
    settings = asked.settings()
    found = Checked()
    if "-" in asked.paths:
        found.add(_stdin(settings, mends))
    listed = list(files_of(asked.on_disk, settings))
    found.unread += [one for one in listed if isinstance(one, Unread)]
    files = [one for one in listed if isinstance(one, str)]
    found.add(check_files(files, settings, fix=mends, cache_in=cache_folder() if asked.cached else None))
    if asked.fix and not asked.diff:
        _write(found, settings)
    # What is mended on stdin goes to stdout, as a filter's output; then the findings go beside it.
    _print(found, asked, sys.stderr if asked.fix and not asked.diff and "-" in asked.paths else sys.stdout)
    for unread in found.unread:
        print(clean(f"holter: {unread.file}: {unread.why}"), file=sys.stderr)
    return 1 if found.problems or (asked.diff and found.changes) else 2 if found.unread else 0


def _print(found: Checked, asked: _Asked, stream: TextIO) -> None:
    from holter.views.plain import clean, paint, wants_color

    form = "diff" if asked.diff else asked.form
    lines_of = importlib.import_module(f"holter.check.formats.{form}").lines_of
    safe = clean if stream.isatty() else str  # a script may hold what moves the cursor
    if form == "text":
        color = wants_color(stream, may_be_forced=True)
        lines = lines_of(found, lambda text, style: paint(safe(text), style, color and style != ""))
    else:
        lines = map(safe, lines_of(found))
    for line in lines:
        print(line, file=stream)


def _explain(code: str) -> None:
    """Print the page of a rule, as docs/check.md has it."""
    import shutil

    from holter.check.page import lines_of
    from holter.check.rule import find_rules
    from holter.views.plain import paint, wants_color

    rule = next((one for one in find_rules() if code.strip().lower() in (one.code.lower(), one.name)), None)
    if rule is None:
        raise UsageError(f"no rule is called {code!r}", "Codes and names are in docs/check.md")
    color = wants_color(sys.stdout, may_be_forced=True)
    width = min(100, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 100
    for line, kind in lines_of(rule, max(40, width)):
        print(paint(line, "bold", color and kind != ""))


def _watch(asked: _Asked) -> None:
    """Check whenever a file changes, comes or goes, until Ctrl-C; what is wrong meanwhile is told and may be mended."""
    from holter.check.files import files_of
    from holter.check.watching import Look, look_at, next_change
    from holter.errors import HolterError
    from holter.views.plain import clean

    settings = asked.settings()

    def look() -> Look:
        files = [one for one in files_of(asked.on_disk, settings) if isinstance(one, str)]
        return look_at([*files, *asked.on_disk, str(settings.root / "pyproject.toml")])

    try:
        while True:
            seen = look()
            if sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            try:
                settings = asked.settings()
                _check(asked)
            except HolterError as error:
                print(clean(f"holter: {error}"), file=sys.stderr)
            print("holter: waits for the next change; Ctrl-C ends it", file=sys.stderr)
            sys.stdout.flush()
            next_change(seen, look)
    except KeyboardInterrupt:
        print(file=sys.stderr)


def _settings(paths: tuple[str, ...], select: str | None, ignore: str | None) -> Settings:
    from dataclasses import replace

    from holter.check.ignores import matches
    from holter.check.settings import find_settings

    first = Path(paths[0]).absolute() if paths else Path.cwd()
    settings = find_settings(first if first.is_dir() else first.parent)
    if select is not None:
        settings = replace(settings, select=_codes(select))
    if ignore is not None:
        settings = replace(settings, ignore=settings.ignore | _codes(ignore))
    named = (settings.select | settings.ignore) - {"ALL"}
    if not named:
        return settings  # the rules take longer to import than a check of files that did not change
    from holter.check.rule import find_rules

    for one in sorted(named):
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
