"""Every rule finds what it is for, on the very line, and is silent on what only looks like it."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from holter.check.engine import check_source
from holter.check.page import parts
from holter.check.rule import HEADINGS, Rule, find_rules
from holter.check.settings import Settings
from holter.check.source import read
from holter.source.module import Module
from holter.source.syntax import parse

FIXTURES = Path(__file__).with_name("fixtures")
PATIENTS = Path(__file__).parents[1] / "patients"
RULES = {rule.name: rule for rule in find_rules()}
# `# <- CODE level` at the end of a line that must be found; `@-2` where the finding starts lines above its marker.
MARK = re.compile(r"#\s*<-\s*(HLT\d+)\s+(error|warning|note)(?:\s+@(-\d+))?")


def expected(path: Path) -> list[tuple[int, str, str]]:
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for code, level, away in MARK.findall(line):
            found.append((number + int(away or 0), code, level))
    return sorted(found)


def found_by(rule: Rule, path: Path) -> list[tuple[int, str, str]]:
    checked = check_source(read(str(path)), Settings(select=frozenset({rule.code})))
    assert checked.unread == []
    return sorted((problem.line, problem.code, problem.level) for problem in checked.problems)


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("*/sick_*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_sick_script_is_found_on_its_line(path: Path) -> None:
    """The line, the code and the level are those of the marker beside it, and there are no others."""
    wanted = expected(path)

    assert wanted
    assert found_by(RULES[path.parent.name], path) == wanted


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("*/silent_*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_look_alike_is_left_alone(path: Path) -> None:
    """The healthy twin of a sick script gets no finding."""
    assert found_by(RULES[path.parent.name], path) == []


@pytest.mark.parametrize("rule", find_rules(), ids=lambda rule: rule.name)
def test_every_rule_has_sick_scripts_and_look_alikes(rule: Rule) -> None:
    """A rule without both is not a rule yet."""
    folder = FIXTURES / rule.name

    assert list(folder.glob("sick_*.py"))
    assert list(folder.glob("silent_*.py"))


@pytest.mark.parametrize("rule", find_rules(), ids=lambda rule: rule.name)
def test_every_rule_tells_its_story_under_the_same_headings(rule: Rule) -> None:
    """In this order, each with something under it."""
    told = re.split(rf"^({'|'.join(HEADINGS)}):", rule.story, flags=re.M)

    assert tuple(told[1::2]) == HEADINGS
    assert all(text.strip() for text in told[2::2])


SCRIPTS = sorted({*FIXTURES.glob("*/*.py"), *PATIENTS.glob("*.py")})


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_rule_would_find_nothing_where_its_words_are_missing(path: Path) -> None:
    """What is not asked for a script, to save the time, has nothing to say about it when it is asked."""
    text = path.read_text()
    module = Module(parse(text), text, str(path))

    for rule in find_rules():
        if not rule.may_find(text, text.__contains__):
            assert list(rule.examine(module)) == [], rule.name


def test_codes_and_names_are_unique() -> None:
    """A code is a promise: people write it into their files."""
    rules = find_rules()

    assert len({rule.code for rule in rules}) == len({rule.name for rule in rules}) == len(rules)
    assert all(re.fullmatch(r"HLT[1-6]\d\d", rule.code) for rule in rules)


@pytest.mark.parametrize("rule", find_rules(), ids=lambda rule: rule.name)
def test_a_rule_finds_the_example_of_its_page_and_not_what_stands_instead(rule: Rule, tmp_path: Path) -> None:
    """Both in the script that the rule's fixtures have for it, in the place of `# EXAMPLE`."""
    around = (FIXTURES / rule.name / "example.txt").read_text()
    indent, told = re.findall(r"^( *)# EXAMPLE$", around, flags=re.M), parts(rule)
    found = {}
    for heading in ("Example", "Instead"):
        script = tmp_path / f"{heading.lower()}.py"
        script.write_text(around.replace(f"{indent[0]}# EXAMPLE", textwrap.indent(told[heading], indent[0])))
        found[heading] = found_by(rule, script)

    assert len(indent) == 1
    assert found["Example"]
    assert found["Instead"] == []


def test_nothing_is_said_about_tests() -> None:
    """A test is no run: short, and often sick on purpose."""
    path = FIXTURES / "zero-grad-missing" / "sick_never.py"
    source = read(str(path))
    source.path = "tests/test_training.py"

    assert check_source(source, Settings(select=frozenset({"HLT201"}))).problems == []


HEALTHY = sorted(
    path.with_suffix(".py") for path in PATIENTS.glob("*.json") if json.loads(path.read_text())["cause"] is None
)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_patient_gets_no_error_and_no_warning(path: Path) -> None:
    """The ward's healthy scripts, with all rules: a note about speed is the most that is said."""
    checked = check_source(read(str(path)), Settings())

    assert {problem.level for problem in checked.problems} <= {"note"}
