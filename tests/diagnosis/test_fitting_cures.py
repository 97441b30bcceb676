"""A cure is shown as it fits the script: nothing that it already has, no diff of lines that it does not have."""

from __future__ import annotations

import pytest

from holter.diagnosis.core.fitting_cures import fitting_cures
from holter.finding import Culprit, Cure, Finding

SCRIPT = [
    "",
    "from tensorflow import keras as k",
    "",
    "for fold in range(5):",
    "    k.backend.clear_session()",
    "    model = build()",
    "    gc.collect()",
    '    model.compile(optimizer="adam",   loss="mse", run_eagerly=True)',
    "    losses.append(loss)",
    "",
]


def fitted(*cures: Cure, lines: list[str] = SCRIPT) -> tuple[Cure, ...]:
    finding = Finding("leak.model-rebuilt", "established", "x", (), Culprit("train.py", 6, "", ""), cures)
    return fitting_cures(finding, lines).cures


def test_a_cure_that_the_script_already_contains_is_left_out() -> None:
    """By the calls that it would add, whatever the module is called there."""
    assert fitted(Cure("release it", "+ keras.backend.clear_session()\n+ gc.collect()")) == ()


def test_a_cure_of_which_only_a_part_is_there_stays() -> None:
    """What is missing is still worth saying; as an example, for nothing says where it belongs."""
    cure = Cure("release it", "+ keras.backend.clear_session()\n+ del model")

    assert fitted(cure) == (Cure("release it", "keras.backend.clear_session()\ndel model"),)


def test_a_line_to_add_is_shown_beside_a_line_of_the_script() -> None:
    """Which must be there."""
    own = Cure("drop it", "+ del model\n  model = build()")
    other = Cure("drop it", "+ del model\n  model = make()")

    assert fitted(own, other) == (own, Cure("drop it"))


def test_a_command_is_written_with_the_runs_own_words() -> None:
    """Ready to be pasted, quoted for a shell."""
    finding = Finding("fragmentation", "established", "x", (), None, (Cure("grow", "A=1 holter run -- COMMAND"),))

    fitting = fitting_cures(finding, (), ["python", "train it.py", "--lr", "1"])

    assert fitting.cures[0].how == "A=1 holter run -- python 'train it.py' --lr 1"


def test_a_diff_of_the_scripts_own_lines_is_shown() -> None:
    """However they are spaced."""
    cure = Cure("keep the number", "- losses.append( loss)\n+ losses.append(loss.item())")
    own = Cure("keep the number", "-    losses.append(loss)\n+    losses.append(loss.item())")

    assert fitted(own) == (own,)
    assert fitted(cure)[0].how == ""


def test_a_diff_of_lines_that_are_not_there_is_not() -> None:
    """An example is no diff: the title says what to do."""
    assert fitted(Cure("compile it", "-    model.compile(...)\n+    model.compile(..., jit_compile=True)")) == (
        Cure("compile it"),
    )


@pytest.mark.parametrize("how", ["", "batch/2 with 2 accumulated steps", "DataLoader(..., drop_last=True)"])
def test_what_is_no_diff_is_left_as_it_is(how: str) -> None:
    """A hint in words, or an example of a call."""
    assert fitted(Cure("do it", how)) == (Cure("do it", how),)


def test_without_the_source_nothing_is_left_out() -> None:
    """What the script says is not known."""
    cure = Cure("release it", "+ gc.collect()")

    assert fitted(cure, lines=[]) == (cure,)
