"""The live screen: driven by Textual's own pilot on real records, and once in a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from build import GB, exception, memory, ordinary_run
from tests.conftest import HOLTER
from tests.views.conftest import keep
from tests.views.records import hanging_run, healthy_run, leaking_run, slow_run

pytest.importorskip("textual")

from tests.views.watching import Screen, driven
from textual.widgets import DataTable

from holter.views.watch.canvas import Canvas
from holter.views.watch.charts_pane import ChartsPane


def test_enter_opens_a_run_and_escape_leads_back(tmp_path, monkeypatch):
    """The newest run is the first; arrows choose another; q leaves."""
    keep(healthy_run(), tmp_path, name="first")
    keep(leaking_run(), tmp_path, name="second")

    async def test():
        async with Screen(tmp_path, monkeypatch, size=(100, 24)) as screen:
            await screen.wait(lambda: screen.app.screen.query_one(DataTable).row_count == 2)
            await screen.wait(lambda: "second" in screen.text() and "first" in screen.text())
            listed = screen.text()
            await screen.pilot.press("down", "enter")
            document = await screen.opened()
            await screen.pilot.press("escape")
            await screen.wait(lambda: "2 runs" in screen.text())
            await screen.pilot.press("q")
            await screen.wait(lambda: not screen.app.is_running)
            return listed, document

    listed, document = driven(test())

    assert listed.index("second") < listed.index("first")
    assert document["run"]["name"] == "first"


def test_an_answer_that_comes_when_the_screen_is_being_left_is_dropped(tmp_path, monkeypatch):
    """Its widgets are gone by then, as when one quits while a large record is read."""
    keep(healthy_run(), tmp_path, name="first")

    async def test():
        async with Screen(tmp_path, monkeypatch) as screen:
            await screen.wait(lambda: screen.app.screen.query_one(DataTable).row_count == 1)
            runs = screen.app.screen
            await screen.pilot.press("enter")
            document, run = await screen.opened(), screen.app.screen
            for one in (run, runs):
                await one.query("*").remove()
            run.show(document)
            run.look()
            run._unreadable("gone")
            runs.show([])
            return screen.app.is_running, run.document is document

    assert driven(test()) == (True, True)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (120, 40), (240, 70)])
def test_every_size_has_its_layout(size, tmp_path, monkeypatch):
    """From 80 by 24 up to wide: the charts, the claim and the keys are there, and no row of a chart is folded."""
    folder = keep(leaking_run(), tmp_path)

    async def test():
        async with Screen(tmp_path, monkeypatch, folder, size=size) as screen:
            await screen.opened()
            words = ("Memory", "killed by the kernel", "Quit")
            await screen.wait(lambda: all(word in screen.text() for word in words))
            return screen.text(), screen.app.screen.query_one("#drawn").size

    screen_text, drawn = driven(test())

    assert "Memory" in screen_text
    assert "killed by the kernel" in screen_text
    assert "Quit" in screen_text
    assert all(len(line) <= size[0] for line in screen_text.splitlines())
    assert drawn.width <= size[0]


def test_the_screen_follows_its_terminal(tmp_path, monkeypatch):
    """Made wide while it is open, the words move beside the charts; made small again, below them."""
    folder = keep(leaking_run(), tmp_path)

    async def test():
        async with Screen(tmp_path, monkeypatch, folder, size=(80, 24)) as screen:
            await screen.opened()

            def below():
                charts, words = (screen.app.screen.query_one(name).region for name in ("#charts", "#words"))
                return words.y >= charts.bottom

            for width in (80, 160, 80):
                await screen.pilot.resize_terminal(width, 40)
                await screen.wait(lambda width=width: below() is (width == 80))

    driven(test())


def test_keys_zoom_move_and_go_back_to_the_whole_run(tmp_path, monkeypatch):
    """+ halves the window at its end, the left arrow goes back in time, 0 shows all again; ? tells the keys."""
    folder = keep(leaking_run(), tmp_path)

    async def test():
        async with Screen(tmp_path, monkeypatch, folder) as screen:
            document = await screen.opened()
            charts = screen.app.screen.query_one(ChartsPane)
            await screen.pilot.press("+")
            near = charts.window
            await screen.pilot.press("left")
            left = charts.window
            await screen.pilot.press("-", "-")
            out = charts.window
            await screen.pilot.press("+", "0")
            await screen.pilot.press("?")
            await screen.wait(lambda: "no run is touched" in screen.text())
            screen_text = screen.text()
            await screen.pilot.press("x")
            await screen.pilot.press("tab")
            return document["clock"]["length"], near, left, out, charts.window, screen_text, screen.app.focused.id

    length, near, left, out, whole, screen_text, focused = driven(test())

    assert near == pytest.approx((length / 2, length))
    assert left == pytest.approx((length * 3 / 8, length * 7 / 8))
    assert (out, whole, focused) == (None, None, "words")
    assert "no run is touched" in screen_text


def test_what_is_zoomed_into_has_readings_of_its_own(tmp_path, monkeypatch):
    """A zoom asks for its window: of a long run it shows readings that the whole did not."""
    record = ordinary_run()
    for tenth in range(6000):
        memory(record, tenth / 10, 2 * GB + tenth)
    folder = keep(record.exit(600, 0), tmp_path)

    async def test():
        async with Screen(tmp_path, monkeypatch, folder, size=(80, 24)) as screen:
            whole = await screen.opened()
            for _ in range(5):
                await screen.pilot.press("+")
            await screen.wait(lambda: screen.app.screen.document is not whole)
            await screen.wait(lambda: times(screen.app.screen.document)[0] > 500)
            return whole, screen.app.screen.document

    def times(document):
        return next(chart["times"] for chart in document["charts"] if chart["key"] == "memory")

    whole, near = driven(test())

    assert len([time for time in times(near) if time > 585]) > 2 * len([time for time in times(whole) if time > 585])


TRAINING = """
import time, holter
for i in range(1_000_000):
    time.sleep(0.02)
    holter.step(loss=1.0 / (i + 1))
"""


def test_a_run_that_ends_while_it_is_watched_stays_with_its_verdict(holter, monkeypatch, wait_for):
    """Live it shows steps that grow; killed, it says so without being asked; the watcher harmed nothing."""
    process = holter.start("run", "--quiet", "--", sys.executable, holter.script(TRAINING))
    wait_for(lambda: holter.timeline("steps") if holter.record().exists() else None, "the first steps")
    child = holter.events("spawned")[0]["pid"]

    async def test():
        async with Screen(holter.home, monkeypatch, holter.record()) as screen:
            first = await screen.opened()
            await screen.wait(lambda: screen.app.screen.document["now"]["step"] != first["now"]["step"])
            live = screen.text()
            os.kill(child, signal.SIGKILL)
            await screen.wait(lambda: not screen.app.screen.document["run"]["live"])
            await screen.wait(lambda: "running" not in screen.text() and "SIGKILL" in screen.text())
            return live, screen.text()

    live, over = driven(test())
    process.wait(600)

    assert "running" in live
    assert "running" not in over
    assert "SIGKILL" in over
    assert process.returncode == 137


def test_a_damaged_record_is_told_and_leaves_the_list_working(tmp_path, monkeypatch):
    """A record without its facts says why; one with lines that can't be read shows what is left of it."""
    cut, torn = keep(healthy_run(), tmp_path), keep(leaking_run(), tmp_path)
    (cut / "record.json").write_text("{")
    with (torn / "events.jsonl").open("ab") as file:
        file.write(b'{"k": "forec\xff\xfe\n')

    async def test():
        async with Screen(tmp_path, monkeypatch, size=(100, 30)) as screen:
            await screen.wait(lambda: screen.app.screen.query_one(DataTable).row_count == 2)
            await screen.pilot.press("enter")
            await screen.opened()
            whole = screen.whole()
            await screen.pilot.press("escape")
            await screen.wait(lambda: "2 runs" in screen.text())
            await screen.pilot.press("down", "enter")
            await screen.wait(lambda: "is not JSON" in " ".join(screen.text().split()))  # its path may fold it
            await screen.pilot.press("escape")
            await screen.wait(lambda: "2 runs" in screen.text())
            return whole

    assert "lines could not be read" in driven(test())


EVIL = "[bold red]x[/] [@click=app.quit]y[/] \x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc {{z}} :smile:"


def test_a_hostile_name_stays_text(tmp_path, monkeypatch):
    """Markup, links and escape sequences in names, messages and code are shown as they are, or as a blot."""
    record = exception(ordinary_run(command=("python", f"{EVIL}.py")), 59, "ValueError", EVIL)
    record.lines("exception")[0]["frames"][0] |= {"file": f"/home/u/{EVIL}.py", "code": EVIL}
    folder = keep(record.exit(60, 1), tmp_path, name=EVIL)

    async def test():
        async with Screen(tmp_path, monkeypatch, size=(200, 40)) as screen:
            await screen.wait(lambda: screen.app.screen.query_one(DataTable).row_count == 1)
            await screen.wait(lambda: "exception" in screen.text())
            listed = screen.text()
            screen.app.open_run(folder)
            await screen.opened()
            await screen.wait(lambda: ":smile:" in screen.text())
            return listed, screen.text()

    for screen_text in driven(test()):
        assert "[bold red]x[/]" in screen_text
        assert ":smile:" in screen_text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", screen_text)


def test_a_finding_that_comes_is_told_apart(tmp_path, monkeypatch):
    """What was there at the first look is not told again; what comes after it is."""
    folder = keep(hanging_run(), tmp_path)

    async def test():
        async with Screen(tmp_path, monkeypatch, folder) as screen:
            document = await screen.opened()
            before = len(screen.app._notifications)
            fresh = {**document["findings"][0], "cause": "leak.native", "claim": "memory [b]grows[/b]"}
            screen.app.screen.show({**document, "findings": [*document["findings"], fresh]})
            await screen.wait(lambda: "memory [b]grows[/b]" in screen.text())
            return before, [one.message for one in screen.app._notifications], screen.text()

    before, told, screen_text = driven(test())

    assert (before, told) == (0, ["memory [b]grows[/b]"])
    assert "memory [b]grows[/b]" in screen_text


def test_the_curve_goes_where_the_values_are():
    """A straight rise is drawn from the lower left to the upper right; a limit lies behind it in its row."""
    canvas = Canvas(10, 4, (0.0, 10.0), (0.0, 100.0))
    canvas.curve([(0.0, 0.0), (10.0, 100.0)], "cyan")
    canvas.rule(99.0, "red")
    rows = [line.plain for line in canvas.lines()]

    assert rows[0][:6] == "╌" * 6
    assert rows[0].strip("╌") != ""
    assert [len(row) - len(row.lstrip(" ╌")) for row in rows] == sorted(
        (len(row) - len(row.lstrip(" ╌")) for row in rows), reverse=True
    )


def test_without_colour_layers_differ_by_their_texture():
    """Two layers of a column are two signs where there is no colour."""
    canvas = Canvas(4, 4, (0.0, 1.0), (0.0, 4.0))
    canvas.layers([[2.0] * 4, [2.0] * 4], ["yellow", "green"], color=False)

    assert [line.plain for line in canvas.lines()] == ["▒▒▒▒", "▒▒▒▒", "████", "████"]


class Terminal:
    """`holter watch` in a terminal of its own."""

    def __init__(self, home, *arguments, **environ):
        self.master, slave = pty.openpty()
        env = {**os.environ, "HOLTER_HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **environ}
        env.pop("COLORTERM", None)
        self.process = subprocess.Popen(
            [*HOLTER, "watch", *arguments], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.seen = b""

    def until(self, what, seconds=600.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not re.search(what, self.seen):
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    break
        assert re.search(what, self.seen), self.seen[-2000:]

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(600)
        os.close(self.master)


@pytest.fixture
def terminal():
    started = []

    def start(*arguments, **environ):
        started.append(Terminal(*arguments, **environ))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_in_a_terminal_of_sixteen_colours(tmp_path, terminal):
    """No colour is asked for that such a terminal has not; q leaves with 0, and the screen is given back."""
    keep(leaking_run(), tmp_path)
    screen = terminal(tmp_path, "r-0001")
    screen.until(rb"Memory")
    screen.until(rb"Quit")
    os.write(screen.master, b"q")
    screen.until(rb"\x1b\[\?1049l")

    assert screen.process.wait(600) == 0
    assert re.search(rb"\x1b\[(?:[\d;]*;)?31[;m]", screen.seen)
    assert not re.search(rb"[34]8;[25];", screen.seen)


def test_the_list_has_the_verdicts_of_ls(tmp_path, terminal):
    """Of runs that have ended, the ending and the first finding, in the same words; slow is told apart from failed."""
    for made in (leaking_run(), healthy_run(), slow_run()):
        keep(made, tmp_path)
    screen = terminal(tmp_path, COLUMNS="250", LINES="30")
    environ = {**os.environ, "HOLTER_HOME": str(tmp_path)}
    listed = subprocess.run([*HOLTER, "ls", "--json"], env=environ, capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in listed.splitlines()]

    assert [row["ending"] for row in rows] == ["completed", "completed", "oom-killed"]
    for row in rows:
        screen.until(re.escape(row["ending"]).encode())
        screen.until(re.escape(row["why"][:12]).encode())
    screen.until(b"!")


def test_no_color_is_obeyed(tmp_path, terminal):
    """With NO_COLOR there is none; Ctrl-C leaves too."""
    keep(leaking_run(), tmp_path)
    screen = terminal(tmp_path, "r-0001", NO_COLOR="1")
    screen.until(rb"Memory")
    screen.until(rb"Quit")
    os.write(screen.master, b"\x03")

    assert screen.process.wait(600) == 0
    hues = [int(code) for found in re.findall(rb"\x1b\[([\d;]+)m", screen.seen) for code in found.split(b";")]
    assert [code for code in hues if (30 <= code <= 48 and code != 39) or (code >= 90 and code != 49)] == []


def test_without_a_terminal_it_says_what_to_use(holter):
    """Exit code 2 and one line."""
    holter.run("true")
    done = holter("watch")

    assert done.returncode == 2
    assert done.stderr.decode().startswith("holter: holter watch needs a terminal. Without one: holter why")


def test_without_textual_it_says_what_to_install(holter, tmp_path):
    """Exit code 8 and one line."""
    (tmp_path / "textual.py").write_text("")
    hide = "import sys, importlib.util as u; f = u.find_spec\n"
    hide += "u.find_spec = lambda name, *a: None if name == 'textual' else f(name, *a)\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    done = holter("watch", env={"PYTHONPATH": str(tmp_path)})

    assert done.returncode == 8
    assert done.stderr.decode() == (
        "holter: the live screen needs Textual, which is not installed. pip install 'holter[watch]'\n"
    )
