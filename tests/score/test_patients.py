"""The patients are what they say they are, and a part of them is really run under Holter and judged."""

from __future__ import annotations

import io
import re
import threading
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.score.judge import judge
from tests.score.patient import WARD, Patient, find
from tests.score.stay import attend

PATIENTS = find()
QUICK = [patient for patient in PATIENTS if patient.in_tests]
_KINDS = {"completed", "exception", "oom-killed", "killed", "crashed", "hung", "stopped-early", "interrupted"}
# Words that would tell what is wrong; the name, the comments and the strings of a script are a user's.
_HINTS = re.compile(
    r"\b(leak(s|ed|ing|age)?|oom|out of memory|deadlock\w*|hangs?|hanging|illness|bugs?|culprit|holter|thrash\w*"
    r"|oversi[sz]\w*|swallow\w*|crash\w*|recompil\w*|oversubscri\w*|throttl\w*)\b",
    re.IGNORECASE,
)


def by_name(patients: list[Patient]) -> list[Any]:
    return [pytest.param(patient, id=patient.name) for patient in patients]


def words_of(script: Path) -> Iterator[str]:
    """Comments, strings and names."""
    for token in tokenize.generate_tokens(io.StringIO(script.read_text()).readline):
        if token.type == tokenize.NAME:
            yield token.string.replace("_", " ")
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.string


def test_every_script_has_a_sidecar_and_every_sidecar_a_script() -> None:
    """Whoever adds a patient adds two files."""
    scripts = {path.stem for path in WARD.glob("*.py")}
    sidecars = {path.stem for path in WARD.glob("*.json")}

    assert sidecars == scripts


@pytest.mark.parametrize("patient", by_name(PATIENTS))
def test_the_sidecar_is_true_to_the_script(patient: Patient) -> None:
    """Each text that names a line is on one line alone, each ending is one that there is, each sick one has a cause."""
    lines = patient.script.read_text().splitlines()
    texts = [text for text in (patient.culprit, *patient.culprit_also) if text]

    assert {text: sum(text in line for line in lines) for text in texts} == dict.fromkeys(texts, 1)
    assert set(patient.endings) <= _KINDS
    assert patient.story


@pytest.mark.parametrize("patient", by_name(PATIENTS))
def test_the_script_gives_no_hint(patient: Patient) -> None:
    """Nothing in the script says what is wrong with it, or that anything is."""
    told = [found.group() for words in [patient.name.replace("_", " "), *words_of(patient.script)]
            for found in _HINTS.finditer(words)]  # fmt: skip

    assert told == []


@pytest.mark.parametrize("sick", [True, False], ids=["sick", "healthy"])
def test_a_third_is_kept_aside(sick: bool) -> None:
    """One in three or more was set apart before it was run under Holter; those for a GPU are too few for that."""
    members = [patient for patient in PATIENTS if (patient.cause is not None) == sick and not patient.gpu]
    aside = sum(bool(patient.aside) for patient in members)

    assert aside >= len(members) // 3


@pytest.mark.parametrize("patient", by_name(QUICK))
def test_a_patient_is_diagnosed(patient: Patient, tmp_path: Path) -> None:
    """Run within its limits under Holter: the sick are told their cause and line, the healthy are left in peace."""
    patience = patient.on_a_busy_machine(4)
    stay = attend(patience, tmp_path / patient.name, bare=False, stop=threading.Event())
    if stay.skipped:
        pytest.skip(stay.skipped)
    score = judge(patient, stay.home)
    told = f"{score.said} ({score.grade}) at {score.culprit_said}: {score.claim}"

    # Beside the tests a run that computes may lose its cores, and is rightly told so.
    assert [alarm for alarm in score.alarms if not alarm.startswith("cpu.starved")] == []
    assert score.ending_right, f"ended as {score.ending}"
    assert score.family_right is not False, told
    assert score.culprit_right is not False, told
