"""The schema of the record: held against what is written, and against what anyone might write."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holter
from holter.record.events.agent import Made, UncaughtException
from holter.record.events.kinds import EVENTS, typed
from holter.record.events.looks import NonfiniteLook
from holter.record.events.run import RunFacts
from holter.record.events.schema import LONGEST_TEXT, Line, Row, hints_of, keys_of, rows_of
from holter.record.events.timeline import READINGS, TIMELINE, Processes, StepWindow
from holter.record.reader import Record

SOURCE = Path(holter.__file__).parent
WRITERS = ("agent", "recorder", "probes", "remedies", "facts", "diagnosis/forecast", "record/steps.py")
# The calls by which events are written, and what a keeper tells to the recorder alone.
CALLS = ("say", "event", "_event", "emit")
NOT_KEPT = {"ending", "passed", "drained"}
LINES = (*EVENTS, *TIMELINE)
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 10**400, 1e300, math.nan, math.inf, "", "x" * 10_000, "nan", [], [1, None, "a", {}, []], {},
    {"k": "sample"}, [{}], [[[]]], {"list": 3}, object(),
]  # fmt: skip


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for name in WRITERS:
        path = SOURCE / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            yield file, ast.parse(file.read_text())


def written() -> Iterator[tuple[str, str, set[str]]]:
    """Each call that writes an event of a kind that stands there: where, the kind, and the fields that are named."""
    for file, tree in sources():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            kind = node.args[0].value
            # An act of healing and a word to the user are said in calls of the same name.
            if name not in CALLS or len(node.args) > 1 or not isinstance(kind, str) or " " in kind:
                continue
            where = f"{file.relative_to(SOURCE)}:{node.lineno}"
            yield where, kind, {one.arg for one in node.keywords if one.arg} - {"keep"}


def names_in_writers() -> set[str]:
    """Every word that the writers' code uses as a key, a field or a variable of the environment."""
    found: set[str] = set()
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                said = node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")
                found |= {said, said.lower()}
    return found


def test_what_is_written_stands_in_the_schema() -> None:
    """Each kind, and each field that is named in the call."""
    known = {kind.KIND: set(keys_of(kind).values()) for kind in EVENTS}
    calls = [call for call in written() if call[1] not in NOT_KEPT]

    assert len(calls) > 80
    assert [where for where, kind, _ in calls if kind not in known] == []
    assert [(where, kind, fields - known[kind]) for where, kind, fields in calls if fields - known[kind]] == []


def test_what_stands_in_the_schema_is_written() -> None:
    """So that nothing is read that nobody writes: mypy holds the readers to the schema, and this the schema."""
    kinds = {kind for _, kind, _ in written()}
    names = names_in_writers()

    # These are written by calls whose kind is a variable: loops, and events that come from elsewhere.
    assert {kind.KIND for kind in EVENTS} - kinds - {"nan", "early-stop"} == set()
    for row in (*LINES, *READINGS, RunFacts, *rows_of((*LINES, *READINGS))):
        missing = {key for key in keys_of(row).values() if key not in names}
        # The first two are of every line, the others put together from two words.
        assert missing - {"t", "m"} == set(), row.__name__


@pytest.mark.parametrize("row", [*LINES, *READINGS, RunFacts], ids=lambda row: row.__name__)
def test_a_value_of_another_type_is_absent(row: type[Row]) -> None:
    """Whatever stands under a key, reading it raises nothing and the other fields are as they were."""
    for name, key in keys_of(row).items():
        for odd in ODD:
            found = row.parse({key: odd, "unknown": odd})

            assert _fits(getattr(found, name), hints_of(row)[name]), (name, odd)
            others = [other for other in keys_of(row) if other != name]
            assert all(getattr(found, other) == getattr(row(), other) for other in others)
    for odd in ODD:
        assert not isinstance(odd, dict) or not odd or row.parse(odd) is not None
        assert isinstance(odd, dict) or row.parse(odd) == row()


def _fits(value: Any, hint: Any) -> bool:
    said = str(hint)
    if hint is Any or (value is None and "None" in said):
        return True
    if isinstance(value, tuple):
        return said.startswith("tuple")
    if isinstance(value, float):
        return ("float" in said or hint is float) and math.isfinite(value)
    if isinstance(value, str):
        return (hint is str or "str" in said) and len(value) <= LONGEST_TEXT
    return isinstance(value, (bool, int, Row))


def test_numbers_are_finite_and_within_reach() -> None:
    """As many as a run can count; NaN, infinities and truth values are no numbers."""
    assert [StepWindow.parse({"sum": value}).sum for value in (1, 2.5, True, math.nan, 1e19)] == [1.0, 2.5] + [None] * 3
    assert [StepWindow.parse({"n": value}).n for value in (1, 2.5, True, math.inf, 10**19)] == [1, 2] + [None] * 3
    # Weights that ran away are larger than what is a number elsewhere; what is non-finite is written as a text.
    look = NonfiniteLook.parse({"params": {"max": 1e30}, "losses": [1, None, "nan", 1e30], "loss": "inf"})
    assert look.params is not None
    assert (look.params.max, look.losses, look.loss) == (1e30, (1.0, None, "nan", 1e30), "inf")


def test_rows_that_are_none_are_left_out() -> None:
    """Of a list only the objects count."""
    read = Processes.parse({"list": [{"pid": 3}, 4, None, {}, {"pid": "x", "name": "python"}]})

    assert [(row.pid, row.name) for row in read.rows] == [(3, ""), (None, ""), (None, "python")]


def test_unknown_kinds_are_passed_over() -> None:
    """A record of a newer version opens: what this one does not know is not there for it."""
    lines: list[dict[str, Any]] = [
        {"k": "made", "t": 1.0, "m": 2.0, "what": "model", "of_next_year": [1]},
        {"k": "of-next-year", "t": 1.0, "m": 3.0, "what": "model"},
        {"k": ["made"], "t": 1.0, "m": 3.0} | {"k": "exception"},
    ]
    record = Record({"schema": 1}, lines)

    assert [(event.what, event.m) for event in record.of(Made)] == [("model", 2.0)]
    assert [type(line) for line in typed(lines)] == [Made, UncaughtException]


def test_each_kind_has_one_class() -> None:
    """And each class a kind of its own, and a sentence that the page shows."""
    assert len({kind.KIND for kind in LINES}) == len(LINES)
    assert all(issubclass(kind, Line) and kind.KIND and kind.__doc__ for kind in LINES)
