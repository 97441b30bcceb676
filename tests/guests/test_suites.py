"""The frameworks' own tests come to the same under Holter: the two minutes of `make guests` that every change pays."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from dataclasses import replace

import pytest
from bench.guests import SUITES, compare, differences, source

from tests.needs import needs

# The most telling files of each suite that needs nothing but the environment of these tests.
_CALLBACKS = "terminate_on_nan learning_rate_scheduler lambda_callback"
# Of one more the tests that train once; the others take half of the time and train with the same callback.
_EARLY = "reuse with_baseline"
PARTS = {
    "torch": ["guests_torch.py", "-k", "test_module or test_optimizer"],
    "keras": [
        *(f"keras/src/callbacks/{name}_test.py" for name in _CALLBACKS.split()),
        *(
            f"keras/src/callbacks/early_stopping_test.py::EarlyStoppingTest::test_early_stopping_{name}"
            for name in _EARLY.split()
        ),
    ],
    "accelerate": ["tests/test_optimizer.py", "tests/test_scheduler.py", "tests/test_hooks.py"],
}


@pytest.mark.parametrize("name", PARTS)
def test_a_suite_comes_to_the_same_watched_and_with_heal(name: str) -> None:
    """Each test passes, fails or is skipped as it does without Holter, and torch's own to the last bit."""
    suite = next(suite for suite in SUITES if suite.name == name)
    needs(name)
    suite = replace(suite, version=importlib.metadata.version(name).partition("+")[0])
    for beside in {"torch": ["expecttest"], "accelerate": ["parameterized"]}.get(name, []):
        needs(beside)
    try:
        folder = source(suite, sys.executable)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the source package of {name} {suite.version} can't be downloaded: {error}")

    compared = compare(suite, folder, sys.executable, PARTS[name], timed_again=0)

    outcomes = [outcome for outcome, _ in compared.runs["plain"].seen.values()]
    assert outcomes.count("passed") > 10, "the suite itself did not run: see .venvs/guests/logs"
    assert [line for line in differences(compared) if " differs: " in line] == []
