"""What tests of the views share: built records on disk, a server of its own, and a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import HOLTER

from holter.record import place
from holter.record.writer import RecordWriter

sys.path.insert(0, str(Path(__file__).parent.parent / "diagnosis"))

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def keep(record: Any, home: Path, name: str = "") -> Path:
    """Write a built record as the recorder would have; gives its folder."""
    folder = place.new_run(home)
    writer = RecordWriter(folder)
    writer.meta({**record.meta, "id": folder.name, "name": name or record.meta.get("name", "")})
    writer.events(record.events)
    writer.timeline(record.timeline)
    writer.close()
    return folder


def until(tab: Any, script: str, seconds: float = 600) -> None:
    """Wait for something on the page; asked from outside, since the page's policy lets nothing be evaluated in it."""
    end = time.monotonic() + seconds
    while not tab.evaluate(f"Boolean({script})"):
        assert time.monotonic() < end, script
        tab.wait_for_timeout(50)


class Served:
    """`holter serve` on a home, and a plain way to ask it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        environ = {**os.environ, "HOLTER_HOME": str(home)}
        command = [*HOLTER, "serve", "--port", "0"]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.base, _, self.token = self.address.partition("/?token=")
        self.cookie = f"holter-{self.base.rpartition(':')[2]}={self.token}"

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; redirects are not followed, and the cookie is sent unless another is given."""
        given = {"Cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        request = urllib.request.Request(self.base + path, headers=given)
        try:
            with urllib.request.build_opener(_Stay).open(request, timeout=600) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def json(self, path: str) -> Any:
        status, _headers, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(600)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        return None


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Served]]:
    started: list[Served] = []

    def start(home: Path) -> Served:
        started.append(Served(home))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real Chromium from the system's packages, driven by playwright."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium here: make browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A page in a profile of its own; an error or a refused script on it fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(600_000)  # as everywhere here: a machine that others use, too, may take long
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.wrong = wrong
    yield page
    context.close()
    assert wrong == []
