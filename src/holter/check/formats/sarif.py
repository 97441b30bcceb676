"""For code scanning services: SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from holter.check.problem import Checked, Problem
from holter.check.rule import find_rules

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def lines_of(found: Checked) -> Iterator[str]:
    """Give one SARIF document, with every rule that it may refer to."""
    rules = [
        {
            "id": rule.code,
            "name": rule.name,
            "shortDescription": {"text": rule.story.strip().partition("\n")[0]},
            "help": {"text": rule.cures[0].title},
        }
        for rule in find_rules()
    ]
    index = {str(rule["id"]): at for at, rule in enumerate(rules)}
    failures = [{"level": "warning", "message": {"text": f"{one.file}: {one.why}"}} for one in found.unread]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "holter check", "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": failures}],
        "results": [_result(problem, index) for problem in found.problems],
    }
    yield json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(problem: Problem, index: dict[str, int]) -> dict[str, Any]:
    region = {
        "startLine": problem.line,
        "startColumn": problem.column,
        "endLine": max(problem.end_line, problem.line),
        "endColumn": problem.end_column,
    }
    cell = f"cell {problem.cell}: " if problem.cell is not None else ""
    place = {"artifactLocation": {"uri": quote(PurePath(problem.file).as_posix())}, "region": region}
    return {
        "ruleId": problem.code,
        "ruleIndex": index[problem.code],
        "level": problem.level,
        "message": {"text": f"{cell}{problem.claim}. Cure: {problem.cures[0].title}"},
        "locations": [{"physicalLocation": place}],
    }
