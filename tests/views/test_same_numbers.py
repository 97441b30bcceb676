"""Every view of a record says the same: text, JSON, Markdown, report, server, its list, the screen, the exporters."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import urllib.request

import pytest
from tests.views.collecting import Collector, event_file
from tests.views.conftest import keep
from tests.views.records import ALL

from holter.diagnosis.core.doctor import verdict
from holter.figures.document import document_of, mask
from holter.figures.gauges import gauges_of
from holter.figures.summary import summary_of
from holter.own_process import own_process
from holter.record.reader import open_record
from holter.views.markdown import markdown_of
from holter.views.text import write_verdict
from holter.views.web.page import report_page


def said_as_text(record, judged):
    stream = io.StringIO()
    write_verdict(judged, summary_of(record, judged), stream, width=120)
    return " ".join(stream.getvalue().split())


def unescaped(markdown):
    return re.sub(r"\\([\\*_{}\[\]<>#|~])", r"\1", markdown)


@pytest.mark.parametrize("kind", sorted(ALL))
def test_all_views_say_the_same(kind, tmp_path, serve):
    """The ending, the claims and every figure are the same words in all of them."""
    folder = keep(ALL[kind](), tmp_path)
    record = open_record(folder)
    diagnosis = verdict(record)
    document = document_of(record, diagnosis)
    text = said_as_text(record, diagnosis)
    markdown = unescaped(markdown_of(document))
    inside = re.search(r'id="document">(.*?)</script>', report_page(document).decode()).group(1)
    report = json.loads(inside)
    served = serve(tmp_path)
    answer = served.json("/api/run/r-0001?columns=600")
    figures = {figure["key"]: figure for figure in document["figures"]}

    assert report == document
    labels = {"tags": [], "note": ""}  # what people write on a run is no part of what is sent to others
    assert answer == {**document, "run": {**document["run"], **labels}}
    assert document["ending"]["claim"] == diagnosis.ending.claim
    assert diagnosis.ending.claim in markdown
    for finding in diagnosis.findings:
        assert finding.claim[1:] in markdown
        assert finding.claim[1:] in " ".join(json.dumps(diagnosis.as_json(), ensure_ascii=False).split())
    for figure in figures.values():
        assert f"**{figure['value']}**" in markdown
    assert figures["lasted"]["value"] in text
    assert figures["steps"]["value"] in text
    if kind in ("healthy", "leaking"):
        assert figures["memory"]["value"] in text
    peak = max(
        value for chart in document["charts"] if chart["key"] == "memory" for value in chart["channels"][0]["values"]
    )
    assert peak == pytest.approx(summary_of(record, diagnosis).peak_memory, rel=1e-5)


def test_the_list_says_what_the_run_says(tmp_path, serve, wait_for):
    """A row of the list has the ending, the first finding and the length of the run's own page."""
    for make in ALL.values():
        keep(make(), tmp_path)
    served = serve(tmp_path)

    def rows():
        found = served.json("/api/runs")["runs"]
        return found if all(row["known"] for row in found) else None

    for row in wait_for(rows, "the study of all runs"):
        page = served.json(f"/api/run/{row['id']}")
        first = page["findings"][0]["claim"] if page["findings"] else page["ending"]["claim"].removeprefix("The run ")
        lasted = next(figure["value"] for figure in page["figures"] if figure["key"] == "lasted")

        assert (row["kind"], row["why"], row["lasted"]) == (page["ending"]["kind"], first, lasted)


@pytest.mark.parametrize("kind", sorted(ALL))
def test_the_screen_says_what_the_other_views_say(kind, tmp_path, monkeypatch):
    """The ending, every claim, every figure and the last reading of each curve are those of the report."""
    pytest.importorskip("textual")
    from tests.views.watching import Screen, driven

    from holter.views.watch.chart import value_words

    folder = keep(ALL[kind](), tmp_path)
    record = open_record(folder)
    document = document_of(record, verdict(record))

    async def test():
        async with Screen(tmp_path, monkeypatch, folder, size=(200, 50)) as screen:
            await screen.opened()
            return screen.whole()

    shown = driven(test())

    assert document["ending"]["claim"] in shown
    for finding in document["findings"]:
        assert finding["claim"] in shown
    for figure in document["figures"]:
        assert f"{figure['label']} {figure['value']}" in shown
    for chart in document["charts"]:
        assert chart["title"] in shown
    curve = next(chart for chart in document["charts"] if chart["key"] == "memory")
    assert f"Memory  {value_words(curve['channels'][0]['values'][-1], 'bytes')}" in shown.replace("■ ", "")


def exporting(folder, name, listener=None, **environ):
    """The exporter's process on a record, as `holter run` starts it; it ends when its stdin does."""
    fd = listener.fileno() if listener is not None else -1
    order = {"name": name, "where": "logs" if name == "tensorboard" else "", "folder": str(folder)}
    order |= {"cwd": str(folder.parent), "mark": "a-word", "listener": fd}
    process = subprocess.Popen(
        own_process("holter.commands._exporter"), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environ}, pass_fds=[fd] if fd >= 0 else [],
    )  # fmt: skip
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


@pytest.mark.parametrize("kind", sorted(ALL))
def test_the_exporters_say_what_metrics_says(kind, tmp_path, wait_for):
    """OpenTelemetry, TensorBoard and what W&B reads: the gauges of `/metrics`, and the claims of the verdict."""
    pytest.importorskip("opentelemetry.sdk")
    folder = keep(ALL[kind](), tmp_path)
    diagnosis = verdict(open_record(folder))
    gauges = gauges_of(folder)
    collector, listener = Collector(), socket.create_server(("127.0.0.1", 0))
    asked = f"http://127.0.0.1:{listener.getsockname()[1]}/a-word"
    wandb = exporting(folder, "wandb", listener)
    started = [exporting(folder, "otel", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url), exporting(folder, "tensorboard")]
    ends = [process.communicate(timeout=600)[1] for process in started]
    scraped = wait_for(lambda: urllib.request.urlopen(asked, timeout=600).read().decode(), "numbers for W&B")
    wandb.communicate(timeout=600)
    listener.close()
    collector.close()
    scalars, texts = event_file(folder.parent / "logs" / "holter")
    claims = [mask(diagnosis.ending.claim), *(mask(finding.claim) for finding in diagnosis.findings)]
    read = {name: float(value) for name, value in re.findall(r"^holter_run_(\w+)\{.*\} (\S+)$", scraped, re.M)}
    float32 = {name: pytest.approx(value, rel=1e-6) for name, value in gauges.items() if name != "step"}

    assert ends == [b"", b""]
    assert collector.gauges[-1][1] == {f"holter_run_{name}": value for name, value in gauges.items()}
    assert read == {name: pytest.approx(value, rel=1e-9) for name, value in gauges.items()}
    assert {tag.removeprefix("holter/"): points[-1][1] for tag, points in scalars.items()} == float32
    assert {points[-1][0] for points in scalars.values()} == {int(gauges["step"])}
    assert [event["body"] for event in collector.events if event["event"] != "holter.alarm"] == claims
    assert [
        unescaped(words).split("\n\n")[0] for words in (*texts["holter/ending"], *texts.get("holter/finding", ()))
    ] == claims
