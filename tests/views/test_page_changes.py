"""Tags, notes and deletion in a real Chromium: by the mouse, by the keyboard, and never without a question."""

from __future__ import annotations

import json

import pytest
from tests.views.conftest import keep
from tests.views.records import healthy_run, raising_run

from holter.record.labels import read_labels


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    for made in (healthy_run(), raising_run(), healthy_run()):
        keep(made, folder)
    return folder


@pytest.fixture
def listed(home, serve, tab):
    served = serve(home)
    tab.goto(served.address)
    tab.wait_for_selector("[data-run=r-0003]")
    tab.served = served
    return tab


def runs(tab):
    return tab.evaluate("[...document.querySelectorAll('.runs tbody tr')].map((row) => row.dataset.run)")


def test_runs_are_deleted_after_a_question_and_not_before(listed, home):
    """Esc and Keep leave them; what goes is named; the focus goes back to where it was."""
    listed.get_by_label("Choose r-0001").check()
    listed.get_by_label("Choose r-0002").check()
    listed.get_by_role("button", name="Delete 2").click()
    asked = listed.locator("dialog").inner_text()
    listed.keyboard.press("Escape")
    assert listed.locator("dialog").count() == 0
    assert listed.evaluate("document.activeElement.textContent") == "Delete 2"
    listed.keyboard.press("Enter")
    listed.keyboard.press("Enter")  # the focus is on what does no harm
    assert runs(listed) == ["r-0003", "r-0002", "r-0001"]
    listed.get_by_role("button", name="Delete 2").click()
    listed.get_by_role("button", name="Delete all 2").click()
    for run in ("r-0001", "r-0002"):
        listed.wait_for_selector(f"[data-run={run}]", state="detached")

    assert "r-0001, r-0002" in asked
    assert "Files of the training itself are not touched" in asked
    assert runs(listed) == ["r-0003"]
    assert [path.name for path in (home / "runs").glob("r-*")] == ["r-0003"]


def test_tags_are_written_on_several_runs_and_find_them(listed, home):
    """A click on a tag shows the runs that have it."""
    listed.get_by_label("Choose all runs that are shown").check()
    listed.get_by_label("Choose r-0002").uncheck()
    listed.get_by_role("button", name="Tag 2").click()
    listed.keyboard.type("baseline seed-7")
    listed.keyboard.press("Enter")
    listed.wait_for_selector("[data-run=r-0001] .tag")
    listed.wait_for_selector("[data-run=r-0003] .tag")
    listed.locator("[data-run=r-0001]").get_by_role("button", name="seed-7").click()

    assert runs(listed) == ["r-0003", "r-0001"]
    assert read_labels(home / "runs" / "r-0001").tags == ("baseline", "seed-7")
    assert read_labels(home / "runs" / "r-0002").tags == ()


def test_a_run_is_tagged_noted_and_deleted_on_its_own_page(listed, home):
    """With the keyboard alone; what is written stays when the page is loaded again."""
    listed.goto(f"{listed.served.base}/run/r-0002")
    listed.get_by_label("Add tags").focus()
    listed.keyboard.type("odd best")
    listed.keyboard.press("Enter")
    listed.get_by_role("button", name="Remove the tag odd").focus()
    listed.keyboard.press("Enter")
    listed.wait_for_function("document.querySelectorAll('.labels .tag').length === 1")
    listed.get_by_role("button", name="Write a note").focus()
    listed.keyboard.press("Enter")
    listed.keyboard.type("two lines\n<b>of it</b>")
    listed.keyboard.press("Control+Enter")
    listed.wait_for_selector(".labels .note")
    listed.reload()
    listed.wait_for_selector(".labels .note")

    assert listed.locator(".labels .note").inner_text() == "two lines\n<b>of it</b>"
    assert read_labels(home / "runs" / "r-0002").tags == ("best",)
    listed.get_by_role("button", name="Delete", exact=True).click()
    listed.get_by_role("button", name="Delete it").click()
    listed.wait_for_selector("[data-run=r-0003]")
    assert runs(listed) == ["r-0003", "r-0001"]


def test_what_can_not_be_done_is_told_and_the_page_goes_on(listed, home):
    """A tag that is too long; the reason comes in the server's words."""
    listed.goto(f"{listed.served.base}/run/r-0002")
    listed.get_by_label("Add tags").fill("x" * 60)
    listed.keyboard.press("Enter")
    said = listed.locator("dialog").inner_text()
    listed.keyboard.press("Escape")
    listed.wrong.clear()  # the browser itself notes the answer 409
    listed.get_by_label("Add tags").fill("short")
    listed.keyboard.press("Enter")
    listed.wait_for_selector(".labels .tag")

    assert "1 to 40 letters" in said
    assert json.loads((home / "runs" / "r-0002" / "labels.json").read_text())["tags"] == ["short"]


def test_a_report_has_no_way_to_change_anything_and_no_note(home, listed, tmp_path):
    """It is sent to others: what people wrote for themselves stays at home."""
    import subprocess

    from tests.conftest import HOLTER

    environ = {"HOLTER_HOME": str(home), "PATH": "/usr/bin"}
    subprocess.run([*HOLTER, "note", "r-0002", "between us"], env=environ, check=True)
    subprocess.run([*HOLTER, "report", "r-0002", "-o", str(tmp_path / "x.html")], env=environ, check=True)
    listed.goto((tmp_path / "x.html").as_uri())
    listed.wait_for_selector(".claim")

    assert listed.locator(".labels, dialog, form").count() == 0
    assert "between us" not in (tmp_path / "x.html").read_text()
