"""What the views show, as plain data: the right numbers, thinned without losing an extreme, from any record."""

from __future__ import annotations

import json
import math
import random

import pytest
from build import GB, MB, TRAINER, WORKER, exception, ordinary_run, without_memory
from test_rules import odd_record
from tests.views.records import hanging_run, leaking_run, nan_run

from holter.diagnosis.core.doctor import verdict
from holter.figures.attachments import output_lines
from holter.figures.charts import charts_of
from holter.figures.document import document_of
from holter.figures.shape import Channel, Chart, thin


def document(record):
    return document_of(record, verdict(record))


def charts(record):
    return {chart.key: chart for chart in charts_of(record, verdict(record).ending)}


def test_memory_stands_against_its_limit_with_what_was_foretold():
    """The run's own curve up to the kill, the container's limit, and the forecast from where it was told."""
    memory = charts(leaking_run())["memory"]

    assert memory.limit == 8 * GB
    assert memory.channel("run").values[0] == 1 * GB
    assert memory.channel("run").values[-1] == pytest.approx(7.785 * GB)
    assert memory.times[-1] == pytest.approx(58.9)
    assert [(ahead.used, ahead.limit, ahead.when) for ahead in memory.ahead] == [(3.3 * GB, 8 * GB, 60.0)]


def test_memory_by_role_never_adds_up_to_more_than_the_run_holds():
    """Pages that workers share with the trainer stand in each one's count; the roles share what the run holds."""
    record = without_memory(ordinary_run(), 0).event("guest", 1, pid=WORKER, role="worker")
    for second in range(10):
        rows = [{"pid": TRAINER, "rss": 2 * GB}, {"pid": WORKER, "rss": 2 * GB}, {"pid": 99, "rss": 1 * MB}]
        record.sample(
            second, processes={"rss": 4 * GB, "list": rows}, cgroup={"path": "/a", "limit": 8 * GB, "usage": 3 * GB}
        )

    memory = charts(record)["memory"]

    assert [channel.key for channel in memory.channels] == ["run", "trainer", "worker"]
    assert memory.channel("trainer").values[5] + memory.channel("worker").values[5] <= 3 * GB


def test_a_step_is_split_into_data_computing_and_the_rest():
    """Seconds per step; the three add up to the whole step."""
    step = charts(leaking_run())["step"]
    parts = [channel.values[3] for channel in step.channels]

    assert [channel.key for channel in step.channels] == ["data", "compute", "other"]
    assert parts == pytest.approx([0.02, 0.07, 0.01])


def test_a_loss_that_is_no_number_breaks_the_curve():
    """Its times and first steps are told, and no thinning closes the gap; a loss that stays a number has none."""
    loss = charts(nan_run())["loss"]
    thinned = thin(loss, 12)

    assert [one.step for one in loss.nonfinite] == [241, 481]
    assert [one.since for one in loss.nonfinite] == pytest.approx([27.9, 51.9])
    assert [one.until for one in loss.nonfinite] == pytest.approx([32.9, 58.9])
    assert None in thinned.channel("last").values[2:-2]
    assert charts(leaking_run())["loss"].nonfinite == ()


def test_a_loss_that_never_was_a_number_has_its_chart():
    """It is the one that somebody looks for."""
    record = ordinary_run()
    for line in record.timeline:
        if line["k"] == "steps":
            line["bad_loss"] = line["first"]

    loss = charts(record.exit(60, 0))["loss"]

    assert set(loss.channel("last").values) == {None}
    assert [one.step for one in loss.nonfinite] == [1]


def test_a_hang_is_a_pace_that_falls_to_zero():
    """The silence at the end is on the curve of the pace."""
    rate = charts(hanging_run())["rate"].channels[0].values

    assert max(rate) > 8
    assert rate[-5:] == (0.0,) * 5


def test_a_findings_evidence_has_its_place_on_the_charts():
    """Times in seconds since the start, the step at that time, and the charts that show it best."""
    found = document(leaking_run())["findings"][0]
    kill = found["evidence"][0]

    assert found["charts"][0] == "memory"
    assert kill["what"] == "kernel"
    assert kill["time"] == pytest.approx(60.1, abs=0.5)
    assert kill["step"] == 550
    assert found["span"][0] < 10 < 59 < found["span"][1]


def test_a_hang_points_at_the_time_without_progress():
    """From the last sign of life to the end."""
    found = document(hanging_run())["findings"][0]

    assert found["family"] == "hang"
    assert found["span"] == pytest.approx([58.9, 90], abs=0.5)


def noisy(n=20_000, seed=1):
    rolled = random.Random(seed)
    values = [rolled.random() for _ in range(n)]
    rare = [float(at) if at % 777 == 5 else None for at in range(n)]
    return Chart(
        "x",
        "X",
        "number",
        tuple(map(float, range(n))),
        (Channel("a", "a", tuple(values)), Channel("b", "b", tuple(rare))),
    )


def test_thinning_keeps_first_last_and_extremes_of_every_column():
    """Whatever a column of pixels would have shown is still there."""
    chart = noisy()

    small = thin(chart, 100)

    assert len(small.times) < 1200
    assert (small.times[0], small.times[-1]) == (0.0, 19_999.0)
    for column in range(100):
        inside = [
            v
            for t, v in zip(chart.times, chart.channels[0].values, strict=True)
            if column * 200 <= t < column * 200 + 200
        ]
        kept = [
            v
            for t, v in zip(small.times, small.channels[0].values, strict=True)
            if column * 200 - 3 <= t < column * 200 + 203
        ]
        assert min(inside) in kept
        assert max(inside) in kept
    assert max(v for v in small.channels[1].values if v is not None) == max(
        v for v in chart.channels[1].values if v is not None
    )


def test_one_spike_in_a_day_is_never_thinned_away():
    """A single reading far above the rest, anywhere."""
    for at in (0, 1, 7_777, 19_998, 19_999):
        values = [1.0] * 20_000
        values[at] = 9.0
        chart = Chart("x", "X", "number", tuple(map(float, range(20_000))), (Channel("a", "a", tuple(values)),))

        small = thin(chart, 300)

        assert small.times[small.channels[0].values.index(9.0)] == at


def test_a_zoom_has_finer_grain_and_a_neighbour_on_each_side():
    """So that lines go on to the edges of the window."""
    small = thin(noisy(), 100, 5000.5, 5100.5)

    assert small.times == tuple(map(float, range(5000, 5102)))


def test_a_record_of_any_kind_has_a_document():
    """Whatever a damaged record holds, its document is JSON without NaN, and every chart is whole."""
    for seed in range(150):
        found = document(odd_record(seed))

        assert json.dumps(found, allow_nan=False)
        for chart in found["charts"]:
            assert all(len(channel["values"]) == len(chart["times"]) for channel in chart["channels"]), seed
            assert chart["times"] == sorted(chart["times"])
            assert all(v is None or math.isfinite(v) for channel in chart["channels"] for v in channel["values"])


def test_secrets_and_homes_are_masked_wherever_they_stand():
    """In the output, in a message, in a command."""
    record = exception(ordinary_run(), 59, "ValueError", "login with api_key=abcd1234efgh failed in /home/ada/x.py")
    record.output = "token: s3cr3t-s3cr3t\nAuthorization: Bearer abcdefghijkl\nfine\n"
    record.meta["name"] = "ghp_0123456789abcdefghij0123"

    text = json.dumps(document(record.exit(60, 1)))

    assert "fine" in text
    for secret in ("abcd1234efgh", "s3cr3t", "abcdefghijkl", "ghp_0123456789", "/home/ada"):
        assert secret not in text


def test_the_end_of_the_output_is_as_it_stood_on_the_screen():
    """Of a progress bar only its last state, no colours, no control characters."""
    raw = "\x1b[31mred\x1b[0m\r\n 10%|#\r 20%|##\r\n\x1b]0;title\x07bell\x08\n\n"

    assert output_lines(raw) == ["red", " 20%|##", "bell�"]
