"""The pages in a real Chromium: what a person sees, clicks and presses, and what a hostile record can't do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from build import exception, ordinary_run
from tests.views.conftest import keep, until
from tests.views.records import hanging_run, healthy_run, leaking_run, nan_run, slow_run

from holter.diagnosis.core.doctor import verdict
from holter.figures.document import document_of
from holter.record.labels import Labels, change_labels
from holter.record.reader import open_record
from holter.units import count, duration, size
from holter.views.web import page
from holter.views.web.page import has_charts, report_page

needs_charts = pytest.mark.skipif(not has_charts(), reason="built without the chart library: see hatch_build.py")
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

READY = "document.querySelectorAll('.chart canvas').length > 2 && document.querySelector('.claim')"
WINDOW = "document.querySelector('.board').dataset.window"
LABELS = "[...document.querySelectorAll('.chart')].map((one) => one.dataset.chart)"


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    keep(leaking_run(), folder, "leaky")
    keep(hanging_run(), folder, "stuck")
    return folder


@pytest.fixture
def opened(home, serve, tab):
    served = serve(home)
    tab.goto(f"{served.base}/run/r-0001?token={served.token}")
    until(tab, READY)
    return tab


def drag(tab, chart, begin, end):
    """Draw the mouse over a chart, from one part of its width to another."""
    box = tab.locator(f"[data-chart={chart}] .u-over").bounding_box()
    tab.mouse.move(box["x"] + begin * box["width"], box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + (begin + end) / 2 * box["width"], box["y"] + box["height"] / 2)
    tab.mouse.move(box["x"] + end * box["width"], box["y"] + box["height"] / 2)
    tab.mouse.up()


def window(tab):
    found = tab.evaluate(WINDOW)
    return [float(part) for part in found.split(",")] if found else None


def test_the_list_leads_to_a_run_and_a_search_finds_it(home, serve, tab):
    """All runs with their endings; the filter by the keyboard; a click opens one."""
    served = serve(home)
    tab.goto(served.address)
    tab.wait_for_selector("[data-run=r-0001][data-kind=oom-killed]")

    assert tab.url == f"{served.base}/"
    assert "2 runs" in tab.locator(".tally").inner_text()
    tab.keyboard.press("/")
    tab.keyboard.type("stuck")
    assert tab.locator(".runs tbody tr").count() == 1
    words = tab.locator("[data-run=r-0002] .why").bounding_box()
    tab.mouse.click(words["x"] + 20, words["y"] + 15)  # the whole row leads there
    tab.wait_for_selector(".claim")
    assert tab.url.endswith("/run/r-0002")


def test_columns_sort_and_the_way_back_leads_to_the_same_list(home, serve, tab):
    """By a click or Enter, once more turns it round; the order is in the address, and told to a screen reader."""
    keep(healthy_run(), home, "a short one")
    served = serve(home)
    tab.goto(served.address)
    tab.wait_for_selector("[data-run=r-0003][data-tone=good]")
    runs = "[...document.querySelectorAll('.runs tbody tr')].map((one) => one.dataset.run).join()"
    assert tab.evaluate(runs) == "r-0003,r-0002,r-0001"
    tab.get_by_role("button", name="Memory").click()
    assert tab.evaluate(runs) == "r-0001,r-0003,r-0002"
    tab.get_by_role("button", name="Memory").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate(runs) == "r-0003,r-0002,r-0001"
    tab.get_by_role("button", name="Name").click()
    assert tab.evaluate(runs) == "r-0003,r-0001,r-0002"
    assert tab.locator("th[aria-sort=ascending]").inner_text() == "Name"
    tab.locator("[data-run=r-0002] a").focus()
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".claim")
    assert tab.url.endswith("/run/r-0001")
    tab.go_back()
    tab.wait_for_selector("[data-run=r-0001]")

    assert tab.evaluate(runs) == "r-0003,r-0001,r-0002"


@needs_charts
def test_a_run_shows_the_verdicts_own_words_and_numbers(opened, home):
    """The claim, every figure and every finding are those of `holter why`."""
    record = open_record(home / "runs" / "r-0001")
    document = document_of(record, verdict(record))

    assert opened.locator(".claim").inner_text() == document["ending"]["claim"]
    for figure in document["figures"]:
        assert figure["value"] in opened.locator(f"[data-figure={figure['key']}] dd").inner_text()
    shown = opened.locator(".finding .says").all_inner_texts()
    assert [text[1:] for text in shown] == [finding["claim"][1:] for finding in document["findings"]]
    assert opened.evaluate(LABELS) == [chart["key"] for chart in document["charts"]]
    assert "limit 8.0 GB" in opened.locator("[data-chart=memory]").inner_text()
    assert "owned" not in opened.title()


@needs_charts
def test_a_mark_under_the_cursor_is_read_out_and_moves_nothing(home, serve, tab):
    """However long its words are, the charts stay where they are."""
    keep(leaking_run().event("forecast", 30, what="memory", text="memory grows, " * 60), home)
    served = serve(home)
    tab.goto(f"{served.base}/run/r-0003?token={served.token}")
    until(tab, READY)
    before = tab.locator("[data-chart=memory] .u-over").bounding_box()
    tab.mouse.move(before["x"] + before["width"] * 30 / 60.3, before["y"] + 40)
    tab.wait_for_timeout(200)

    assert tab.locator(".mark-text").inner_text().startswith("memory grows, memory")
    assert tab.locator("[data-chart=memory] .u-over").bounding_box() == before
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280


@needs_charts
def test_zooming_one_chart_zooms_all(opened):
    """By the mouse; a double click shows the whole run again; a zoom asks the server for its own part."""
    asked = []
    opened.on("request", lambda request: asked.append(request.url))
    drag(opened, "memory", 0.25, 0.5)
    low, high = window(opened)
    opened.wait_for_timeout(400)

    assert (low, high) == pytest.approx((15, 30), abs=1.5)
    assert any("/charts?" in url and "begin=" in url for url in asked)
    for key in ("memory", "rate", "loss", "step"):
        shown = opened.locator(f"[data-chart={key}]").get_attribute("data-window")
        assert [float(part) for part in shown.split(",")] == pytest.approx([low, high], abs=0.01)
    opened.locator("[data-chart=loss] .u-over").dblclick()
    assert window(opened) is None


@needs_charts
def test_the_axis_can_be_of_steps(opened):
    """Zoomed or not: the same moments, counted in steps; hovering tells time and step."""
    drag(opened, "memory", 0.5, 0.75)
    by_time = window(opened)
    opened.locator("[data-axis=step]").click()
    by_step = window(opened)

    assert by_step == pytest.approx([(second - 4) * 10 for second in by_time], abs=15)
    assert opened.locator("[data-axis=step]").get_attribute("aria-pressed") == "true"
    opened.get_by_role("button", name="Whole run").click()
    opened.locator("[data-chart=memory] .u-over").hover()
    assert "step 2" in opened.locator(".readout").inner_text()
    opened.locator("[data-axis=time]").click()
    opened.locator("[data-chart=memory] .u-over").hover(position={"x": 300, "y": 20})
    assert " in, step " in opened.locator(".readout").inner_text()


@needs_charts
def test_the_keyboard_can_do_it_all(opened):
    """Zoom, move, change the axis, go back; findings open with Enter."""
    opened.locator(".board").focus()
    opened.keyboard.press("+")
    first = window(opened)
    opened.keyboard.press("ArrowRight")
    moved = window(opened)
    opened.keyboard.press("x")
    assert opened.locator("[data-axis=step]").get_attribute("aria-pressed") == "true"
    opened.keyboard.press("0")
    opened.keyboard.press(".")
    near = opened.locator(".readout").inner_text()
    opened.keyboard.press(".")
    further = opened.locator(".readout").inner_text()
    opened.keyboard.press(",")

    assert near != further
    assert opened.locator(".readout").inner_text() == near
    assert first[1] - first[0] == pytest.approx(moved[1] - moved[0], abs=0.1)
    assert moved[0] > first[0]
    assert window(opened) is None
    head = opened.locator(".finding-head").first
    head.focus()
    opened.keyboard.press("Enter")
    assert head.get_attribute("aria-expanded") == "false"


@needs_charts
def test_a_finding_that_is_clicked_shows_its_evidence_on_the_charts(opened):
    """Its charts come forward, the others step back; a second click lets go."""
    head = opened.locator(".finding-head").first
    head.click()  # the first one is open from the start
    assert opened.locator(".chart.aside").count() == 0
    before = opened.locator("[data-chart=memory] canvas").screenshot()
    head.click()
    opened.wait_for_timeout(250)

    assert opened.locator("[data-chart=memory].chosen").count() == 1
    assert opened.locator("[data-chart=loss].aside").count() == 1
    assert opened.locator("[data-chart=memory] canvas").screenshot() != before
    assert "oom_kill 0 → 1" in opened.locator(".finding.open .evidence").inner_text()


@needs_charts
def test_a_loss_that_is_no_number_is_shown_as_that(home, serve, tab):
    """The time and the step are told, the curve is broken there, and its last value is no number."""
    keep(nan_run(), home, "nan")
    served = serve(home)
    tab.goto(f"{served.base}/run/r-0003?token={served.token}")
    until(tab, READY)
    loss = tab.locator("[data-chart=loss]")
    plain = loss.locator("canvas").screenshot()

    assert "NaN or Inf 2 times, first at step 241" in loss.inner_text()
    assert loss.locator(".value").inner_text() == "NaN or Inf"
    assert "before that 1.04" in tab.locator("[data-figure=loss]").inner_text()
    tab.goto(f"{served.base}/run/r-0001")
    until(tab, READY)
    assert "NaN" not in tab.locator("[data-chart=loss]").inner_text()
    assert tab.locator("[data-chart=loss] canvas").screenshot() != plain


@needs_charts
def test_any_chart_is_saved_as_csv(home, serve, tab):
    """One line for each reading, as it was recorded and not as it was thinned for the screen."""
    keep(nan_run(), home, "nan")
    served = serve(home)
    tab.goto(f"{served.base}/run/r-0003?token={served.token}")
    until(tab, READY)
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Save Loss as CSV").click()
    lines = Path(saved.value.path()).read_text().splitlines()

    assert saved.value.suggested_filename == "r-0003-loss.csv"
    assert lines[0] == "seconds,step,loss,lowest,highest"
    assert lines[1] == "4.9,10,1.98,1.88,2.38"
    assert len(lines) == 56
    assert next(line for line in lines if "nan" in line) == "28.9,250,nan,nan,nan"
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Save Memory as CSV").click()
    assert Path(saved.value.path()).read_text().startswith("seconds,step,the run (bytes)\n-0.1,,2000000000\n")


def test_signs_tell_slow_from_failed(home, serve, tab):
    """Green for what went well, amber for what completed but slow or leaking, red for what failed or came to NaN."""
    for made in (healthy_run(), slow_run(), nan_run()):
        keep(made, home)
    served = serve(home)
    tab.goto(served.address)
    for run, tone in (("r-0001", "bad"), ("r-0003", "good"), ("r-0004", "slow"), ("r-0005", "bad")):
        tab.wait_for_selector(f"[data-run={run}][data-tone={tone}]")
    tab.goto(f"{served.base}/run/r-0004")

    tab.wait_for_selector(".kicker .dot.slow")


@needs_charts
def test_stacks_output_and_environment_can_be_unfolded(home, serve, tab):
    """The blocked thread's own line is marked as the user's."""
    served = serve(home)
    tab.goto(f"{served.base}/run/r-0002?token={served.token}")
    tab.get_by_text("Stacks", exact=True).click()

    assert "train.py:41" in tab.locator(".thread li.user").inner_text()
    tab.get_by_text("Environment", exact=True).click()
    assert "2.13.0" in tab.locator(".facts").inner_text()


LIVE = """
import time, holter
kept = []
for i in holter.track(range(10_000)):
    kept.append(bytearray(200_000))
    time.sleep(0.02)
    holter.step(loss=1 / (i + 1))
    if i % 10 == 0:
        print("at", i, flush=True)
    import os
    if os.path.exists("enough"):
        raise ValueError("enough of it")
"""


@needs_charts
def test_a_run_is_watched_until_it_ends(holter, serve, tab, wait_for):
    """A real run: its row and its page go on as it does, and when it ends the verdict is there without a click."""
    run = holter.start("run", "-q", "--name", "alive", "--", sys.executable, holter.script(LIVE))
    wait_for(lambda: (holter.record() / "record.json").exists() and holter.timeline("steps"), "the first steps")
    served = serve(holter.home)
    tab.goto(served.address)
    tab.wait_for_selector("[data-run=r-0001][data-kind=running]")
    row = tab.locator("[data-run=r-0001]")
    text_shown = row.inner_text()
    until(tab, f"document.querySelector('[data-run=r-0001]').innerText !== {json.dumps(text_shown)}")
    tab.goto(f"{served.base}/run/r-0001")
    until(tab, READY)
    steps = "document.querySelector('[data-figure=steps] dd').innerText"
    before = tab.evaluate(steps)
    until(tab, f"{steps} !== {json.dumps(before)}")
    assert tab.locator(".kind").inner_text().lower() == "running"
    (holter.folder / "enough").touch()
    run.wait(600)
    until(tab, "document.querySelector('.kind').innerText.toLowerCase() === 'exception'")

    assert "enough of it" in tab.locator(".findings").inner_text()
    assert tab.locator(".masthead .state").inner_text() == "ended"


@needs_charts
def test_several_runs_stand_beside_each_other(home, serve, tab):
    """Chosen in the list; their figures in columns and a curve each, by time or each by its own steps."""
    keep(healthy_run(), home, "well")
    keep(nan_run(), home, "nan")
    served = serve(home)
    tab.goto(served.address)
    for run in ("r-0001", "r-0003", "r-0004"):
        tab.get_by_label(f"Choose {run}").check()
    tab.get_by_role("link", name="Compare r-0001, r-0003 and r-0004").click()
    tab.wait_for_selector(".sides")

    assert tab.url.endswith("/compare/r-0001/r-0003/r-0004")
    assert tab.locator(".sides thead th").count() == 3
    assert "7.8 GB" in tab.locator(".sides [data-figure=memory]").inner_text()
    assert "2.0 GB" in tab.locator(".sides [data-figure=memory]").inner_text()
    assert tab.locator("[data-chart=memory] .value").count() == 3
    assert tab.locator("[data-chart=loss] .value").count() == 2  # the healthy one has none
    tab.locator("[data-axis=step]").click()
    tab.locator("[data-chart=memory] .u-over").hover()
    assert tab.locator(".readout").inner_text().startswith("step 2")


def test_a_damaged_record_is_told_and_the_rest_is_shown(home, serve, tab):
    """One without its facts gets a notice; one with torn lines is shown, with what could not be read."""
    meta = home / "runs" / "r-0001" / "record.json"
    meta.write_bytes(meta.read_bytes()[:50])
    with (home / "runs" / "r-0002" / "events.jsonl").open("ab") as file:
        file.write(b'{"k":"said","t":1,"m":\n\xff\xfe\n')
    served = serve(home)
    tab.goto(f"{served.base}/run/r-0001?token={served.token}")
    tab.wait_for_selector(".notice")
    assert "damaged" in tab.locator(".notice").inner_text()
    tab.wrong.clear()  # the browser itself notes the answer 422
    tab.goto(f"{served.base}/run/r-0002")
    tab.wait_for_selector(".damage")

    assert "events.jsonl: 2 lines could not be read" in tab.locator(".damage").inner_text()


def test_a_wrong_token_says_what_to_do(home, serve, tab):
    """And shows nothing."""
    served = serve(home)
    tab.goto(f"{served.base}/?token=wrong")
    text = tab.locator("body").inner_text()
    tab.wrong.clear()  # the browser itself notes the answer 403

    assert "holter serve printed" in text
    assert "leaky" not in text


def hostile_run():
    record = exception(ordinary_run(command=("python", EVIL), name=EVIL), 59, EVIL, EVIL)
    record.lines("exception")[0]["frames"][0] |= {"file": f"/w/{EVIL}", "code": EVIL, "function": EVIL}
    record.event("said", 3, text=EVIL).event("stacks", 4, pid=10, reason="stall", role=EVIL,
        threads=[{"name": EVIL, "frames": [{"file": EVIL, "line": 1, "function": EVIL, "user": True}]}])  # fmt: skip
    record.event("guest", 1, pid=10, role="trainer", python=EVIL)
    return record.exit(60, 1)


def test_hostile_text_stays_text_everywhere(tmp_path, serve, tab):
    """In a name, a command, a message, a stack, an environment: in the list, on the run's page and in the report."""
    folder = keep(hostile_run(), tmp_path / "home", EVIL)
    (folder / "output.tail").unlink(missing_ok=True)
    served = serve(tmp_path / "home")
    record = open_record(folder)
    (tmp_path / "run.html").write_bytes(report_page(document_of(record, verdict(record))))
    for address in (served.address, f"{served.base}/run/r-0001", (tmp_path / "run.html").as_uri()):
        tab.goto(address)
        until(tab, "document.body.innerText.includes('onerror')")
        tab.wait_for_timeout(200)

        assert tab.evaluate("document.querySelectorAll('img, main script, iframe').length") == 0
        assert tab.title() != "owned"


@needs_charts
def test_the_report_opens_offline_with_the_same_charts(home, tmp_path, chromium):
    """From a file, with no network at all: charts, zoom, axes; not one request leaves it."""
    record = open_record(home / "runs" / "r-0001")
    (tmp_path / "run.html").write_bytes(report_page(document_of(record, verdict(record))))
    context = chromium.new_context(offline=True)
    tab = context.new_page()
    asked, wrong = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda text_shown: wrong.append(text_shown.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto((tmp_path / "run.html").as_uri())
    until(tab, READY)
    drag(tab, "memory", 0.25, 0.5)
    tab.locator("[data-axis=step]").click()

    assert window(tab) == pytest.approx([110, 260], abs=20)
    assert wrong == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    context.close()


def test_without_the_chart_library_all_else_is_there(home, tmp_path, tab, monkeypatch):
    """A build that could not have it says so in place of the charts, and nothing fails."""
    kept = {name: raw for name, raw in page.page_files().items() if "uPlot" not in name}
    monkeypatch.setattr(page, "page_files", lambda: kept)
    record = open_record(home / "runs" / "r-0001")
    (tmp_path / "run.html").write_bytes(page.report_page(document_of(record, verdict(record))))
    tab.goto((tmp_path / "run.html").as_uri())
    tab.locator(".evidence button").first.click()
    tab.locator(".finding-head").first.click()

    assert "This install has no charts" in tab.locator(".board").inner_text()
    assert "7.8 GB" in tab.locator("[data-figure=memory]").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_can_read_it(home, serve, chromium, scheme):
    """Nothing is wider than the screen, and text stands out from the paper in both schemes."""
    served = serve(home)
    context = chromium.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme, is_mobile=True)
    tab = context.new_page()
    for path in (f"/?token={served.token}", "/run/r-0001", "/run/r-0002"):
        tab.goto(served.base + path)
        tab.wait_for_selector(".claim, .runs td")
        tab.wait_for_timeout(300)

        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert tab.evaluate(CONTRAST) > 4.5
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_as_wcag_asks(home, serve, chromium, scheme):
    """4.5 to 1 against what lies behind it (AA), on every page, with a finding open and a run chosen."""
    keep(slow_run(), home, "slow")
    folder = keep(nan_run(), home, "nan")
    change_labels(folder, lambda _: Labels(tags=("baseline",), note="the one for the paper"))
    served = serve(home)
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    for path in (f"/?token={served.token}", "/run/r-0001", "/run/r-0004", "/compare/r-0001/r-0003/r-0004"):
        tab.goto(served.base + path)
        tab.wait_for_selector(".claim, .runs td.id")
        tab.wait_for_timeout(300)
        if path.startswith("/?"):
            tab.get_by_label("Choose r-0004").check()
            tab.get_by_role("button", name="Delete").click()
        for unfolded in tab.locator("summary").all():
            unfolded.click()

        assert tab.evaluate(PALE) == []
    context.close()


PALE = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((n) => { const c = n / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 }); return 0.2126 * x + 0.7152 * y + 0.0722 * z };
  const behind = (one) => { for (; one; one = one.parentElement) { const c = parts(getComputedStyle(one).backgroundColor); if ((c[3] ?? 1) > 0.99) return c } };
  const pale = [];
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) || one.placeholder;
    if (!own || !one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || one.disabled) continue;
    const shades = [parts(getComputedStyle(one).color), behind(one)].map(light).sort((x, y) => y - x);
    const ratio = (shades[0] + 0.05) / (shades[1] + 0.05);
    if (ratio < 4.5) pale.push(`${one.className || one.tagName}: ${ratio.toFixed(2)} ${one.textContent.slice(0, 40)}`);
  }
  return pale;
}"""  # noqa: E501


CONTRAST = """() => {
  const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map((n) => { const c = n / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const { color, backgroundColor } = getComputedStyle(document.body);
  const [a, b] = [light(color), light(backgroundColor)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""  # noqa: E501


def test_the_page_writes_numbers_as_units_does(home, serve, tab):
    """Sizes, times and counts on axes and under the cursor are the words of the other views."""
    served = serve(home)
    tab.goto(served.address)
    sizes = [0, 1, 999, 999.6, 1000, 12_345, 99_949_000, 99_950_001, 1.5e9, 8e9, 7.996e11, 2.5e12, -3e6]
    times = [0, 2e-5, 0.0004999, 0.01, 0.9994, 1.5, 9.94, 9.96, 59.4, 61, 3599, 3600, 7384, 86_400, 200_000]
    counts = [0, 999, 1000, 1234567]
    found = tab.evaluate(
        "async ([sizes, times, counts]) => { const f = await import('/page/format.js');"
        " return [sizes.map(f.size), times.map(f.duration), counts.map(f.count)] }",
        [sizes, times, counts],
    )

    words = [[size(n) for n in sizes], [duration(t) for t in times], [count(n) for n in counts]]
    assert json.dumps(found) == json.dumps(words)
