"""The same findings for people, programs, code scanning and GitHub."""

from __future__ import annotations

import json

from holter.check.formats import github, sarif, text
from holter.check.formats import json as as_json
from holter.check.problem import Checked, Problem, Unread
from holter.check.rule import find_rules
from holter.finding import Cure

PROBLEM = Problem(
    code="HLT103",
    name="graph-kept",
    level="warning",
    cause="leak.graph-retained",
    file="runs/my train.py",
    line=41,
    column=5,
    end_line=41,
    end_column=18,
    claim="`total` keeps `loss`: 100 % of it",
    source="total += loss",
    cures=(Cure("keep the number, not the tensor: .item()", "- loss\n+ loss.item()"),),
    fixable=True,
)
FOUND = Checked(3, [PROBLEM], [Unread("odd.py", "it does not parse")])


def test_text_has_the_place_the_line_the_cure_and_a_summary() -> None:
    """What a person needs, and how to have it mended."""
    said = list(text.lines_of(FOUND))

    assert said == [
        "runs/my train.py:41:5: HLT103 graph-kept (warning)",
        "    `total` keeps `loss`: 100 % of it",
        "",
        "       41 | total += loss",
        "",
        "    Cure: keep the number, not the tensor: .item() (keeps the result exactly; --fix does it)",
        "        - loss",
        "        + loss.item()",
        "",
        "1 finding in 1 of 3 files; --fix repairs 1 of them",
    ]


def test_json_has_every_field_and_what_was_not_read() -> None:
    """Schema 1: fields may come, none goes."""
    said = json.loads("".join(as_json.lines_of(FOUND)))

    assert said["schema"] == 1
    assert said["unread"] == [{"file": "odd.py", "why": "it does not parse"}]
    assert set(said["findings"][0]) == {
        "code", "name", "level", "cause", "file", "cell", "line", "column", "end_line", "end_column", "claim", "source",
        "cures", "fixable", "edits",
    }  # fmt: skip
    assert said["findings"][0]["cures"] == [
        {"title": "keep the number, not the tensor: .item()", "how": "- loss\n+ loss.item()", "keeps": "exact"}
    ]


def test_sarif_names_each_rule_and_points_into_the_file() -> None:
    """Version 2.1.0: the rule's index fits, the path is a URI, columns are characters."""
    said = json.loads("".join(sarif.lines_of(FOUND)))
    run = said["runs"][0]
    result = run["results"][0]

    assert said["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [rule.code for rule in find_rules()]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "HLT103"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "runs/my%20train.py"},
        "region": {"startLine": 41, "startColumn": 5, "endLine": 41, "endColumn": 18},
    }


def test_github_gets_one_escaped_command_for_each_finding() -> None:
    """Per cent signs, colons and commas are written as the runner reads them."""
    said = list(github.lines_of(FOUND))

    assert said[0] == (
        "::warning file=runs/my train.py,line=41,col=5,endLine=41,title=HLT103 graph-kept::`total` keeps `loss`: "
        "100 %25 of it. Cure: keep the number, not the tensor: .item()"
    )
    assert said[1] == "::warning file=odd.py::it does not parse"
