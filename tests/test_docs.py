"""The pages say what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import holter

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("maker", "page"),
    [
        ("make_rules", "rules.md"),
        ("make_check", "check.md"),
        ("make_record", "record.md"),
        ("make_messages", "messages.md"),
        ("make_verdicts", "verdicts.md"),
    ],
)
def test_the_pages_are_made_from_their_source(maker: str, page: str) -> None:
    """Rules, checks, the record's schema, every sentence: each page is what `make docs` writes today."""
    spec = importlib.util.spec_from_file_location(maker, DOCS / f"{maker}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert (DOCS / page).read_text() == module.page(), "run `make docs`"


def test_every_event_that_is_written_is_documented() -> None:
    """Each kind of line that the recorder, the keeper or an agent writes stands in docs/record.md."""
    import re

    source = Path(__file__).parents[1] / "src" / "holter"
    written = set()
    for path in [*source.glob("recorder/**/*.py"), *source.glob("agent/**/*.py")]:
        text = path.read_text()
        written |= set(re.findall(r"(?:\.event|_event|\bsay|\.say|\.emit)\(\s*\"([a-z-]+)\"", text))
    documented = set(re.findall(r"`([a-z-]+)`", (DOCS / "record.md").read_text()))

    assert len(written) > 15
    assert written - documented == set()


PAGES = [*sorted(DOCS.parent.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_the_pages_lead_somewhere(page: Path) -> None:
    """Every picture and every page that is linked to is there."""
    import re

    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_into_a_page_lead_to_one_of_its_headings(page: Path) -> None:
    """With the names that headings get where the pages are read."""
    import re

    lost = []
    for link, name in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)", page.read_text()):
        target = page.parent / link if link else page
        heads = re.findall(r"^#+ (.*)", target.read_text(), re.M)
        names = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
        lost += [] if name in names else [f"{link}#{name}"]

    assert lost == []


def test_every_job_has_one_short_page_and_is_linked_to() -> None:
    """Under 60 lines each, from the README and from the quick start."""
    for page in sorted(DOCS.glob("jobs/*.md")):
        assert len(page.read_text().splitlines()) < 60, page.name
        for start in (DOCS.parent / "README.md", DOCS / "quick-start.md"):
            assert f"jobs/{page.name}" in start.read_text(), (page.name, start.name)


READING = re.findall(r"^### (.+)\n((?:.+\n)+)", (DOCS / "architecture.md").read_text(), re.MULTILINE)
MAX_LINES = 1600


@pytest.mark.parametrize("text", [text for _, text in READING], ids=[behaviour for behaviour, _ in READING])
def test_a_behaviour_is_understood_from_a_few_files(text: str) -> None:
    """At most eight files and 1,600 lines, each of them still there."""
    files = [DOCS / link for link in re.findall(r"\]\(([^)]+)\)", text)]

    assert 0 < len(files) <= 8
    assert sum(len(file.read_text().splitlines()) for file in files) <= MAX_LINES


def test_there_are_seven_reading_lists() -> None:
    """The pattern finds them all."""
    assert len(READING) == 7


def test_each_folder_of_the_source_says_what_it_is_for() -> None:
    """Five lines: what it is for, what comes in, what goes out, where to add one."""
    source = Path(holter.__file__).parent
    units = ("rules", "formats", "inject")  # like units, explained one folder above
    folders = sorted({path.parent for path in source.rglob("*.py")} - {source})

    for folder in folders:
        if folder.name not in units:
            lines = (folder / "README.md").read_text().splitlines()
            assert (len(lines), lines[0][:2]) == (5, "# "), folder
