"""Writes docs/messages.md, every sentence that Holter can say, read off its source: `make docs`.

A change of wording shows there as one line, and all of them can be read at one go, as a user would at 3 a.m.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).with_name("messages.md")
SOURCE = Path(__file__).parents[1] / "src" / "holter"
SPEAK_TO_NOBODY = ("agent/patches.py",)  # why each patch is made: for developers
FEWEST_WORDS = 3
_WORD = re.compile(r"[A-Za-z][a-z']+")
_PATTERN = re.compile(r"\\[bdswSWn.(]|\(\?|\[\^|\.\*|\$$")  # a regular expression, not a sentence

TOP = """# Every sentence that Holter can say

Read off the source by `make docs`; do not edit. What stands in braces, or behind a %, is filled in. The help of the
commands is in `holter COMMAND --help`, the pages of the rules in [rules.md](rules.md) and [check.md](check.md).
"""


def page() -> str:
    """One heading for each folder, one line for each sentence, in the order of the source."""
    parts, folder = [TOP], SOURCE.parent
    for path in sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        name = path.relative_to(SOURCE).as_posix()
        sentence = [] if name in SPEAK_TO_NOBODY else list(dict.fromkeys(sentences(path.read_text())))
        if not sentence:
            continue
        if path.parent != folder:
            folder = path.parent
            parts.append(f"## holter/{folder.relative_to(SOURCE).as_posix().strip('.')}\n")
        parts.append(f"**{path.name}**\n\n" + "\n".join(f"- {one}" for one in sentence) + "\n")
    return "\n".join(parts)


def sentences(text: str) -> Iterator[str]:
    """Give the texts of a module that are words for a person, not names, patterns or docstrings."""
    tree = ast.parse(text)
    silent = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)  # a docstring
        elif isinstance(node, ast.JoinedStr):
            silent.update(inner for inner in ast.walk(node) if inner is not node)
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr)) and node not in silent]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
        sentence = _text(node)
        words = _WORD.findall(re.sub(r"\{[^{}]*\}", " ", sentence))
        if len(words) >= FEWEST_WORDS and " " in sentence.strip() and not _PATTERN.search(sentence):
            yield f"`{' '.join(sentence.replace('`', 'ˋ').split())}`"


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    pieces = []
    for value in node.values:
        if isinstance(value, ast.Constant):
            pieces.append(str(value.value))
        elif isinstance(value, ast.FormattedValue):
            pieces.append("{" + _short(value.value) + "}")
    return "".join(pieces)


def _short(value: ast.expr) -> str:
    """What is filled in, by its name where it has one."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Call):
        inner = _short(value.args[0]) if value.args else _short(value.func)
        return inner
    return "…"


if __name__ == "__main__":
    PAGE.write_text(page())
