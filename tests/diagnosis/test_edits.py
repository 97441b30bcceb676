"""Changes to the user's own lines: written where they are safe, and left to words where they are not."""

from __future__ import annotations

import pytest
from tests.cures.apply import applied

from holter.source.edits import (
    before_loop,
    only_filled,
    with_setting,
    with_value,
    without_setting,
    without_statement,
    wrapped_argument,
)

LOOP = ["made = 1", "while made < 9:", "    x = draw()", "    fast = trace(model, made)", "    made += fast(x)"]


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("    fast = trace(model, example)", True),
        ("    fast = trace(model, x)", False),  # which only the loop knows
        ("    fast = trace(model, made)", False),  # which the loop changes
        ("    fast(model)", False),  # which may do something
    ],
)
def test_a_line_is_moved_out_of_a_loop_only_where_it_uses_nothing_of_the_loops(line: str, moves: bool) -> None:
    """Above the loop that it stood in, with its lines around it."""
    script = [*LOOP[:3], line, LOOP[4]]
    how = before_loop(script, 4)

    assert bool(how) is moves
    if moves:
        moved = applied(how, "\n".join(script)).splitlines()
        assert moved == [LOOP[0], line.strip(), *LOOP[1:3], LOOP[4]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model.compile('adam', run_eagerly=True)", "model.compile('adam')"),
        ("model.compile(run_eagerly=True, loss='mse')", "model.compile(loss='mse')"),
        ("    run_eagerly=True,", None),
    ],
)
def test_a_setting_is_taken_out_of_a_call(line: str, expected: str | None) -> None:
    """With its comma; and the whole line where nothing else stands on it."""
    script = [line] if expected else ["model.compile(", line, ")"]

    how = without_setting(script, 1 if expected else 2, "run_eagerly")

    assert how == (f"- {line}\n+ {expected}" if expected else "- run_eagerly=True,")


def test_a_setting_is_added_or_changed() -> None:
    """Behind what is there already."""
    assert with_setting(["f = torch.compile(f)"], 1, ("compile",), "dynamic", "True").endswith("(f, dynamic=True)")
    assert with_setting(["f = compile(f, dynamic=False)"], 1, ("compile",), "dynamic", "True").endswith("dynamic=True)")
    assert with_value(["load(x, batch_size=1)"], 1, "batch_size", "32").endswith("+ load(x, batch_size=32)")
    assert with_value(["load(x, batch_size=n)"], 1, "batch_size", "32") == "", "a name is set elsewhere"


def test_an_argument_behind_others_that_are_unpacked_is_left_alone() -> None:
    """Its place is not known."""
    assert wrapped_argument(["step(*batch, n)"], 1, "step", 1, "n", "t({})") == ""
    assert wrapped_argument(["step(a, é, n)"], 1, "step", 2, "n", "t({})") == "- step(a, é, n)\n+ step(a, é, t(n))"


def test_a_list_that_is_read_is_not_merely_filled() -> None:
    """What is read later can't be left out, nor the only line of a block."""
    filled = ["kept = []", "for n in range(3):", "    kept.append(n)"]

    assert only_filled(filled, "kept")
    assert not only_filled([*filled, "print(kept[0])"], "kept")
    assert without_statement(filled, 3) == ""
    assert without_statement([*filled, "    n += 1"], 3) == "- kept.append(n)"
