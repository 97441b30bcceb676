"""What `check` says about a line and what the doctor says about the run agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import holter
from holter.check.rule import Rule, find_rules
from holter.diagnosis.core.rule import find_rules as doctors_rules

DIAGNOSIS = Path(str(holter.__file__)).parent / "diagnosis"
CAUSES = {rule.cause for rule in doctors_rules()}


def said_by_the_doctor() -> list[re.Pattern[str]]:
    """Every text in the doctor's modules; the parts that are filled in stand for anything."""
    found = []
    for path in DIAGNOSIS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 15:
                found.append(re.compile(re.escape(node.value)))
                # The doctor knows more of the case, and says it behind a colon.
                found += [re.compile(re.escape(node.value.partition(": ")[0]))] if ": " in node.value else []
            elif isinstance(node, ast.JoinedStr):
                parts = [re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".*" for one in node.values]
                if sum(len(part) for part in parts if part != ".*") > 15:
                    said = "".join(parts)
                    found += [re.compile(said), re.compile(said.partition(r":\ ")[0])]
    return found


SAID = said_by_the_doctor()
STORIES = " ".join(" ".join(rule.story.split()) for rule in doctors_rules())


@pytest.mark.parametrize("rule", [rule for rule in find_rules() if rule.cause], ids=lambda rule: rule.name)
def test_the_cause_is_one_of_the_doctors(rule: Rule) -> None:
    """One illness has one name, before the run and after it."""
    assert rule.cause in CAUSES


@pytest.mark.parametrize(
    "rule", [rule for rule in find_rules() if rule.cause and not rule.own_cure], ids=lambda rule: rule.name
)
def test_the_cures_are_the_doctors(rule: Rule) -> None:
    """In the same words."""
    for cure in rule.cures:
        head = cure.title.rpartition(": ")[0] or cure.title  # the doctor puts `: .item()` behind the title
        assert any(one.fullmatch(cure.title) or one.fullmatch(head) for one in SAID) or cure.title in STORIES, (
            cure.title
        )


def test_rules_without_a_cause_are_few() -> None:
    """Most of what is found before a run is what the doctor would find after it."""
    rules = find_rules()

    assert sum(rule.cause is None for rule in rules) <= len(rules) / 3
