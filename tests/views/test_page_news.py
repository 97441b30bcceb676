"""Live pages through what happens to a laptop: sleep, a restart of the server, a token that is no longer good."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import threading

import pytest
from tests.conftest import HOLTER
from tests.views.conftest import keep, until
from tests.views.records import healthy_run, raising_run

TOKEN = "a-token-that-stays-the-same"


class Wire:
    """A line to the server that can go dead: what was connected stays so, and hears nothing any more."""

    def __init__(self, port):
        self.to = port
        self.dead = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _address = self.listening.accept()
            except OSError:
                return
            cut = self.dead
            threading.Thread(target=self._pass_on, args=(near, cut), daemon=True).start()

    def _pass_on(self, near, cut):
        far = socket.create_connection(("127.0.0.1", self.to))
        other = {near: far, far: near}
        while not cut.is_set():
            for one in select.select([near, far], [], [], 0.1)[0]:
                said = one.recv(65536)
                if not said:
                    near.close()
                    far.close()
                    return
                if not cut.is_set():
                    other[one].sendall(said)
        threading.Event().wait()

    def sleep(self):
        """What is connected is dead from here on; what connects from now on is not."""
        cut, self.dead = self.dead, threading.Event()
        cut.set()


@pytest.fixture
def home(tmp_path):
    keep(healthy_run(), tmp_path / "home")
    return tmp_path / "home"


def test_a_list_that_slept_hears_again(home, serve, tab):
    """The connection looks open and is dead, as after sleep: it is taken up anew, and what was missed comes."""
    served = serve(home)
    wire = Wire(int(served.base.rpartition(":")[2]))
    tab.clock.install()
    tab.goto(f"http://127.0.0.1:{wire.port}/?token={served.token}")
    tab.wait_for_selector("[data-run=r-0001][data-kind=completed]")
    until(tab, "document.querySelector('.state').textContent === 'live'")
    wire.sleep()
    keep(raising_run(), home)
    tab.wait_for_timeout(4500)
    heard = tab.locator("[data-run=r-0002]").count()
    for _ in range(60):  # the browser tries each of its connections that are dead
        tab.clock.fast_forward(45_000)
        tab.wait_for_timeout(500)
        if tab.locator("[data-run=r-0002]").count():
            break
    tab.wait_for_selector("[data-run=r-0002][data-kind=exception]")

    assert heard == 0


def test_a_server_that_is_started_again_is_found_and_a_changed_token_is_told(home, tab):
    """With the same token the list goes on by itself; with another one it says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environ = {"HOLTER_HOME": str(home), "PATH": "/usr/bin"}

    def start(token):
        process = subprocess.Popen(
            [*HOLTER, "serve", "--port", port],
            env={**environ, "HOLTER_TOKEN": token},
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, process.stdout.readline().strip()

    server, address = start(TOKEN)
    try:
        tab.goto(address)
        until(tab, "document.querySelector('.state').textContent === 'live'")
        server.kill()
        server.wait()
        until(tab, "document.querySelector('.state').textContent.startsWith('no connection')")
        shutil.copytree(home / "runs" / "r-0001", home / "runs" / "r-0002")
        server, _address = start(TOKEN)
        tab.wait_for_selector("[data-run=r-0002]", timeout=120_000)
        until(tab, "document.querySelector('.state').textContent === 'live'")
        server.kill()
        server.wait()
        server, _address = start(TOKEN + "-new")
        until(tab, "document.querySelector('.state').textContent.startsWith('The token is no longer good')")
    finally:
        server.kill()
        server.wait()
    tab.wrong.clear()  # the browser itself notes each connection that failed
