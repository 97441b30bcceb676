"""Makes the builder importable from every test of this folder and the views'; holds claims to their own figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.claims import contradictions

from holter.diagnosis.core import doctor
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Ending

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def claims_hold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold every verdict of these tests against its own figures, but for records of nonsense."""
    inner, found = doctor.diagnose, []

    def diagnose(record: RecordLike, ending: Ending, *rest: Any) -> Any:
        findings, failed = inner(record, ending, *rest)
        document = {
            "ending": {"kind": ending.kind, "at_step": ending.at_step},
            "findings": [asdict(one) for one in findings],
        }
        found.extend(contradictions(document))
        return findings, failed

    monkeypatch.setattr(doctor, "diagnose", diagnose)
    yield

    assert not found or request.node.get_closest_marker("nonsense")
