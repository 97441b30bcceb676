"""Asks every rule about every file, on as many cores as pay."""

from __future__ import annotations

import ast
import multiprocessing
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from holter.check.fixing import Unfixable, applied
from holter.check.ignores import Ignores, ignores_in
from holter.check.problem import Change, Checked, Edit, Hit, Problem, Unread
from holter.check.rule import Rule, find_rules
from holter.check.settings import Settings
from holter.check.source import CanNotRead, Source, read
from holter.source.module import Module
from holter.source.syntax import parse

# Below this many files a second process takes longer to start than it saves.
_PAYS = 64
_AT_ONCE = 16
_PASSES = 8
_FRAMEWORKS = re.compile(r"torch|tensorflow|keras|jax|lightning|accelerate|transformers")


def check_files(files: Iterable[str], settings: Settings, *, fix: bool = False) -> Checked:
    """Check some files; the order of the findings is that of the files."""
    paths = list(files)
    chunks = [(paths[at : at + _AT_ONCE], settings, fix) for at in range(0, len(paths), _AT_ONCE)]
    whole = Checked()
    workers = min(_cores(), len(chunks))
    if len(paths) < _PAYS or workers < 2:
        for chunk in chunks:
            whole.add(_check_chunk(chunk))
        return whole
    # Forked where that is quick and safe: nothing of ours runs threads.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods and os.name == "posix" else None)
    find_rules()
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for part in pool.map(_check_chunk, chunks):
            whole.add(part)
    return whole


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _check_chunk(chunk: tuple[list[str], Settings, bool]) -> Checked:
    paths, settings, fix = chunk
    whole = Checked()
    for path in paths:
        try:
            whole.add(check_source(read(path), settings, fix=fix))
        except CanNotRead as error:
            whole.add(Checked(1, [], [Unread(path, str(error))]))
    return whole


def check_source(source: Source, settings: Settings, *, fix: bool = False) -> Checked:
    """Check one file; with `fix`, mend what is safe to mend until there is no more of it."""
    found = Checked(1)
    before = source.raw
    edits: list[tuple[Edit, ...]]
    found.problems, edits, found.unread = _examine(source, settings)
    if not fix:
        return found
    for _ in range(_PASSES):
        if not any(edits):
            break
        try:
            mended, count = applied(source, edits)
        except Unfixable as error:
            found.unread.append(Unread(source.path, f"not fixed: {error}"))
            break
        if count == 0 or _tree(mended)[0] is None:
            break
        source, found.fixed = mended, found.fixed + count
        found.problems, edits, found.unread = _examine(source, settings)
    if source.raw != before:
        found.changes.append(Change(source.path, before, source.raw, found.fixed))
    return found


def _examine(source: Source, settings: Settings) -> tuple[list[Problem], list[tuple[Edit, ...]], list[Unread]]:
    tree, source, unread = _readable(source)
    if tree is None or not _FRAMEWORKS.search(source.text):
        return [], [], unread
    lines = [line.rstrip("\r\n") for line in source.lines]
    problems, edits = [], []
    ignores = ignores_in(source.text)
    for rule, hit in _hits(tree, source, settings, unread):
        problem = _problem(rule, hit, source, lines)
        if not _ignored(ignores, rule, hit):
            problems.append((hit, problem))
    problems.sort(key=lambda pair: (pair[0].node.lineno, pair[0].node.col_offset, pair[1].code))
    edits = [hit.edits for hit, _ in problems]
    return [problem for _, problem in problems], edits, unread


def _hits(tree: ast.Module, source: Source, settings: Settings, unread: list[Unread]) -> Iterator[tuple[Rule, Hit]]:
    module: Module | None = None
    for rule in find_rules():
        if not rule.needs.search(source.text) or not settings.wants(rule.code, rule.name, source.path):
            continue
        try:
            module = module or Module(tree, source.text, source.path)
            seen = set()
            for hit in rule.examine(module):
                at = (hit.node.lineno, hit.node.col_offset)
                if at not in seen and (rule.in_tests or not module.in_test(hit.node)):
                    seen.add(at)
                    yield rule, hit
        except Exception as error:
            # A rule that stumbles over one file must not cost the others, nor the other rules.
            unread.append(Unread(source.path, f"{rule.code} failed: {type(error).__name__}: {error}"))


def _ignored(ignores: Ignores, rule: Rule, hit: Hit) -> bool:
    first = hit.node.lineno
    last = hit.node.end_lineno or first
    if isinstance(hit.node, ast.stmt) and hasattr(hit.node, "body"):
        last = first  # a comment somewhere in a loop's body is not about the loop
    return ignores.cover(rule.code, rule.name, first, last)


def _problem(rule: Rule, hit: Hit, source: Source, lines: list[str]) -> Problem:
    node = hit.node
    last = node.end_lineno or node.lineno
    cell, line = source.place(node.lineno)
    text = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    # ast counts bytes, people count characters.
    column = len(text.encode()[: node.col_offset].decode("utf-8", "replace")) + 1
    end = lines[last - 1] if last <= len(lines) else ""
    end_column = len(end.encode()[: node.end_col_offset or 0].decode("utf-8", "replace")) + 1
    cures = (hit.cure,) if hit.cure is not None else rule.cures
    return Problem(
        rule.code, rule.name, hit.level, rule.cause, source.path, line, column, source.place(last)[1], end_column,
        hit.claim, text.strip()[:200], cures, cell, bool(hit.edits),
    )  # fmt: skip


def _readable(source: Source) -> tuple[ast.Module | None, Source, list[Unread]]:
    """Parse a file; of a notebook, leave out the cells that do not parse."""
    tree, why = _tree(source)
    if tree is not None:
        return tree, source, []
    if source.notebook is None:
        return None, source, [Unread(source.path, why)]
    lines = source.lines
    unread = []
    bounds = [start for start, _ in source.cells] + [len(lines) + 1]
    for (start, cell), end in zip(source.cells, bounds[1:], strict=True):
        part = "".join(lines[start - 1 : end - 1])
        ok, why = _tree(replace(source, text=part))
        if ok is None:
            unread.append(Unread(f"{source.path}:cell {cell}", why))
            lines[start - 1 : end - 1] = ["\n"] * (end - start)
    quiet = replace(source, text="".join(lines))
    return _tree(quiet)[0], quiet, unread


def _tree(source: Source) -> tuple[ast.Module | None, str]:
    try:
        return parse(source.text), ""
    except SyntaxError as error:
        return None, f"it does not parse: {error.msg} (line {error.lineno})"
    except (RecursionError, MemoryError):
        return None, "it does not parse: the code is nested too deeply"
    except ValueError as error:
        return None, f"it does not parse: {error}"
