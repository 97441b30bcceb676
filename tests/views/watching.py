"""The live screen with Textual's own pilot, on a home of its own."""

from __future__ import annotations

import asyncio
import io
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console
from textual.widgets import Static

from holter.commands._runs import Runs
from holter.own_process import own_process
from holter.record.recent import written
from holter.views.watch.app import WatchApp
from holter.views.watch.source import Watched
from holter.views.web.reading import Reading
from holter.views.web.watcher import Watcher


class Screen:
    """The app on a home, with its pilot."""

    def __init__(self, home, monkeypatch, first=None, size=(120, 40)):
        monkeypatch.setenv("HOLTER_HOME", str(home))
        self.reading = Reading(own_process("holter.figures.record_worker"))
        self.watcher = Watcher(Runs(), self.reading)
        self.watcher.start()
        folder = Runs().folder
        self.app = WatchApp(
            self.watcher,
            lambda run: Watched(run if isinstance(run, Path) else folder(run), self.reading, written),
            first,
        )
        self.size = size

    async def __aenter__(self):
        self.test = self.app.run_test(size=self.size, notifications=True)
        self.pilot = await self.test.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.test.__aexit__(*error)
        self.watcher.stop()
        self.reading.close()

    def text(self):
        """What is on the screen, in rows."""
        rows = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in rows)

    def whole(self):
        """All that the panes hold, also what one has to scroll to."""
        console = Console(width=300, file=io.StringIO(), color_system=None)
        for name in ("#head", "#drawn", "#said"):
            console.print(self.app.screen.query_one(name, Static).content)
        return console.file.getvalue()

    async def wait(self, what, seconds=600.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await self.pilot.pause(0.05)
            if what():
                return
        pytest.fail(f"not within {seconds} s; on the screen:\n{self.text()}")

    async def opened(self):
        await self.wait(lambda: getattr(self.app.screen, "document", None) is not None)
        return self.app.screen.document


def driven(test):
    """Run a coroutine with a screen, as a test."""
    # In a thread of its own: a browser's test before it may have left a loop running in this one.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(asyncio.run, test).result()
