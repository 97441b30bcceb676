"""The numbers for Prometheus: those of the charts, behind the same token, and well formed whatever a run is called."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.views.conftest import keep
from tests.views.records import ALL, leaking_run

from holter.diagnosis.core.examined import examined
from holter.diagnosis.ending.ending import ending_of
from holter.figures.charts import charts_of
from holter.figures.gauges import gauges_of, meanings
from holter.record.reader import open_record
from holter.views.web.metrics import metrics_text

LABELS = r'\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*\}'
LINE = re.compile(rf"[a-z_]+(?:{LABELS})? (?:[-+]?[\d.]+(?:e[-+]?\d+)?|NaN|[+-]Inf)")

TRAINING = """
import time, holter
for i in range(1_000_000):
    time.sleep(0.02)
    holter.step(loss=1.0 / (i + 1))
"""


@pytest.mark.parametrize("kind", sorted(ALL))
def test_gauges_are_the_last_readings_of_the_charts(kind: str, tmp_path: Path) -> None:
    """Memory, its limit and the loss are what the curves end with."""
    folder = keep(ALL[kind](), tmp_path)
    record = examined(open_record(folder))
    charts = {chart.key: chart for chart in charts_of(record, ending_of(record))}
    found = gauges_of(folder)

    assert found["memory_bytes"] == charts["memory"].channels[0].values[-1]
    assert found.get("memory_limit_bytes") == charts["memory"].limit
    if "loss" in charts:
        assert found["loss"] == charts["loss"].channels[0].values[-1]
    assert set(found) <= set(meanings())


def test_a_run_that_is_on_is_told_to_whoever_has_the_token(holter, serve, wait_for) -> None:
    """With the token as a bearer's or as a cookie; without it nothing, and the token opens nothing else this way."""
    process = holter.start("run", "--quiet", "--name", "odd", "--", sys.executable, holter.script(TRAINING))
    wait_for(lambda: holter.timeline("steps") if holter.record().exists() else None, "the first steps")
    served = serve(holter.home)
    bearer = {"Authorization": f"Bearer {served.token}", "Cookie": ""}

    def answer() -> tuple[int, Any, bytes] | None:
        found = served.ask("/metrics", **bearer)
        return found if b"holter_run_memory_bytes{" in found[2] else None

    status, headers, body = wait_for(answer, "two readings of memory")
    refused = [
        served.ask("/metrics", Cookie="")[0],
        served.ask("/metrics", Cookie="", Authorization="Bearer x")[0],
        served.ask("/api/runs", **bearer)[0],
    ]
    process.terminate()
    process.wait(600)
    text = body.decode()

    assert (status, refused) == (200, [403, 403, 403])
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert re.search(r'^holter_run_memory_bytes\{run="r-0001",name="odd"\} \d{6,}(?:\.\d+)?$', text, re.M)
    assert re.search(r'^holter_run_step\{run="r-0001",name="odd"\} \d+$', text, re.M)
    assert 'holter_runs{kind="running"} 1' in text
    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in text.splitlines())


def test_a_hostile_name_stays_a_label() -> None:
    """Quotes, backslashes and ends of lines in a name never make a line of their own."""
    rows = [{"id": "r-0001", "name": 'x"} 1\nholter_run_step{run="\\', "kind": "running", "live": True}]
    text = metrics_text(rows, {"r-0001": {"step": 3.0, "loss": float("nan")}}, meanings())

    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in text.splitlines()), text
    assert len([line for line in text.splitlines() if line.startswith("holter_run_step{")]) == 1


def test_the_token_can_stay_the_same(tmp_path: Path, serve, monkeypatch) -> None:
    """HOLTER_TOKEN is taken; one that is too short to keep anybody out is not."""
    keep(leaking_run(), tmp_path)
    monkeypatch.setenv("HOLTER_TOKEN", "a-token-of-sixteen-letters")
    kept = serve(tmp_path)
    monkeypatch.setenv("HOLTER_TOKEN", "short")
    refused = serve(tmp_path)

    assert kept.token == "a-token-of-sixteen-letters"
    assert refused.process.wait(600) == 2
    assert os.environ["HOLTER_TOKEN"] not in refused.address
