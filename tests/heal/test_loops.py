"""Loops of many kinds whose batches are run in chunks come to the same weights, and see what they always saw."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest

from tests.agent.agent_run import Run, run
from tests.heal.loops_torch import LOOPS

pytestmark = pytest.mark.torch

CHUNKS = 3
SAME = [name for name in re.findall(r"^def (\w+)\(\):$", LOOPS, re.MULTILINE) if name not in ("labels", "batch_norm")]


class Both(NamedTuple):
    """The same loops as they are, and in chunks."""

    whole: dict[str, dict[str, Any]]
    chunks: dict[str, dict[str, Any]]
    told: Run


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    script = LOOPS + "\n".join(f"told({name!r})" for name in [*SAME, "batch_norm"])
    whole = run(tmp_path_factory.mktemp("whole"), script, agent=False)
    chunks = run(tmp_path_factory.mktemp("chunks"), script, HOLTER_HEAL="1", HOLTER_SPLIT=str(CHUNKS))
    for done in (whole, chunks):
        assert done.code == 0, done.err
    assert chunks.kind("guest-error") == []
    return Both(_read(whole), _read(chunks), chunks)


def _read(done: Run) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in map(json.loads, done.out.splitlines())}


@pytest.mark.parametrize("name", SAME)
def test_weights_rates_and_counts_are_those_of_whole_batches(both: Both, name: str) -> None:
    whole, chunks = both.whole[name], both.chunks[name]

    assert chunks["weights"] == pytest.approx(whole["weights"], rel=1e-9, abs=1e-12)
    assert {**chunks, "weights": 0} == {**whole, "weights": 0}


def test_what_was_done_is_told_for_each_kind_of_model(both: Both) -> None:
    acts = both.told.kind("intervention")

    assert {act["act"] for act in acts} == {"split-batch"}
    assert all(act["keeps"] == "exact" for act in acts if "BatchNorm" not in act["because"])


def test_running_statistics_of_batches_move_as_far(both: Both) -> None:
    whole, chunks = both.whole["batch_norm"], both.chunks["batch_norm"]

    assert chunks["more"][0] == pytest.approx(whole["more"][0], abs=0.05)
    assert (chunks["more"][1], chunks["seen"]) == (whole["more"][1], whole["seen"])
