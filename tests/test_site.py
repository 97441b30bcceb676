"""The site of the pages: links out of docs/ lead to the repository or are taken away, and lost ones are seen."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize(
    ("link", "without", "with_address"),
    [
        ("[a](../src/a.py)", "a", "[a](https://host/us/blob/main/src/a.py)"),
        ("[b](b.md#part)", "[b](b.md#part)", "[b](b.md#part)"),
        ("[c](https://else.where/x)", "[c](https://else.where/x)", "[c](https://else.where/x)"),
        ("![d](../d.png)", "![d](../d.png)", "![d](../d.png)"),
    ],
)
def test_links_out_of_the_pages_need_an_address(link: str, without: str, with_address: str) -> None:
    """None is known yet: then the words stay, and the link goes."""
    turn = module("site_links").without_outside_links

    assert turn(link, "page.md", "") == without
    assert turn(link, "page.md", "https://host/us/") == with_address


def test_a_link_up_to_another_page_stays() -> None:
    """From a folder of the pages to the one above, which is no way out."""
    assert module("site_links").without_outside_links("[a](../healing.md)", "jobs/x.md", "") == "[a](../healing.md)"


def test_lost_links_and_names_are_seen(tmp_path: Path) -> None:
    """Of a built site; other servers are not asked."""
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text('<a href="a/#there"></a><a href="a/#gone"></a><img src="no.png">')
    (tmp_path / "a" / "index.html").write_text('<h1 id="there"><a href="../"></a><a href="https://x.y/z"></a></h1>')

    assert module("check_site").lost_links(tmp_path) == ["index.html: a/#gone", "index.html: no.png"]


def test_every_page_is_in_the_sites_menu() -> None:
    """Or among the decisions, which are linked to from where they matter."""
    menu = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]

    assert [page for page in pages if not page.startswith("decisions/") and f"- {page}\n" not in menu] == []
