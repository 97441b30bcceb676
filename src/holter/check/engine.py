"""Asks the rules about one file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from holter.check.fixing import Unfixable, applied
from holter.check.ignores import Ignores, ignores_in
from holter.check.problem import Change, Checked, Edit, Hit, Problem, TextEdit, Unread
from holter.check.rule import Rule, find_rules
from holter.check.settings import Settings
from holter.check.source import Source
from holter.source.module import Module, is_test
from holter.source.syntax import parse, parses

_PASSES = 8
_FRAMEWORKS = re.compile(r"torch|tensorflow|keras|jax|lightning|accelerate|transformers")


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
    rules = _rules_for(source, settings)
    if not rules and parses(source.text):
        return [], [], []
    tree, source, unread = _readable(source)
    if unread:
        rules = _rules_for(source, settings)  # cells that do not parse were left out
    if tree is None or not rules:
        return [], [], unread
    hits = list(_hits(tree, source, rules, unread))
    if not hits:
        return [], [], unread
    ignores = ignores_in(source.text)
    lines = [line.rstrip("\r\n") for line in source.lines]
    problems = [(hit, _problem(rule, hit, source, lines)) for rule, hit in hits if not _ignored(ignores, rule, hit)]
    problems.sort(key=lambda pair: (pair[0].node.lineno, pair[0].node.col_offset, pair[1].code))
    return [problem for _, problem in problems], [hit.edits for hit, _ in problems], unread


def _rules_for(source: Source, settings: Settings) -> list[Rule]:
    """Give the rules that may find something: most files have the words of none, and need no tree."""
    if not _FRAMEWORKS.search(source.text):
        return []
    has = cache(source.text.__contains__)  # rules share their words
    test = is_test(source.path)
    return [
        rule
        for rule in find_rules()
        if (rule.in_tests or not test)
        and rule.may_find(source.text, has)
        and settings.wants(rule.code, rule.name, source.path)
    ]


def _hits(tree: ast.Module, source: Source, rules: Iterable[Rule], unread: list[Unread]) -> Iterator[tuple[Rule, Hit]]:
    module: Module | None = None
    for rule in rules:
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
    if module is not None:
        module.release()


def _ignored(ignores: Ignores, rule: Rule, hit: Hit) -> bool:
    first = hit.node.lineno
    last = hit.node.end_lineno or first
    if isinstance(hit.node, ast.stmt) and hasattr(hit.node, "body"):
        last = first  # a comment somewhere in a loop's body is not about the loop
    return ignores.cover(rule.code, rule.name, first, last)


def _problem(rule: Rule, hit: Hit, source: Source, lines: list[str]) -> Problem:
    node = hit.node
    cell, line, column = _place(source, lines, node.lineno, node.col_offset)
    _, end_line, end_column = _place(source, lines, node.end_lineno or node.lineno, node.end_col_offset or 0)
    text = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    cures = (hit.cure,) if hit.cure is not None else rule.cures
    edits = tuple(
        TextEdit(*_place(source, lines, *edit.start)[1:], *_place(source, lines, *edit.end)[1:], edit.text)
        for edit in hit.edits
    )
    return Problem(
        rule.code, rule.name, hit.level, rule.cause, source.path, line, column, end_line, end_column,
        hit.claim, text.strip()[:200], cures, cell, bool(hit.edits), edits,
    )  # fmt: skip


def _place(source: Source, lines: list[str], line: int, column: int) -> tuple[int | None, int, int]:
    """Give the cell, the line in it and the character, from 1: `ast` counts bytes, people count characters."""
    text = lines[line - 1] if line <= len(lines) else ""
    return *source.place(line), len(text.encode()[:column].decode("utf-8", "replace")) + 1


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
