"""`holter run --notify`: someone who does not look at the terminal is told, and the run never waits for that."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holter.recorder.launch import notice
from tests.conftest import Holter

SICK = "raise ValueError('odd, with token=sk-abcdefghijklmnopqrstuvwxyz123456')"


class Ear:
    """A server that keeps what it is sent."""

    def __init__(self) -> None:
        heard = self.heard = []  # type: list[dict[str, Any]]
        paths = self.paths = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                paths.append(self.path)
                heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def ear() -> Iterator[Ear]:
    made = Ear()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_sick_run_is_told_with_its_finding_and_a_healthy_one_is_not(holter: Holter, ear: Ear) -> None:
    """One POST with the ending and the first finding; secrets are masked; the exit code is the command's."""
    well = holter("run", f"--notify={ear.url}", "--", "true")
    sick = holter("run", "--name", "odd", f"--notify={ear.url}", "--", sys.executable, "-c", SICK)

    assert (well.returncode, sick.returncode, len(ear.heard)) == (0, 1, 1)
    heard = ear.heard[0]
    assert (heard["schema"], heard["kind"], heard["run"]["id"], heard["run"]["name"]) == (1, "ended", "r-0002", "odd")
    assert heard["ending"]["kind"] == "exception"
    assert heard["finding"]["cause"] == holter.why("r-0002")["findings"][0]["cause"]
    assert "ValueError" in heard["text"]
    assert "sk-abcdefghij" not in json.dumps(heard)


def test_what_is_told_while_the_run_is_on_is_sent_at_once(holter: Holter, ear: Ear, wait_for: Any) -> None:
    """A hang is told before the run is over, in the words of stderr; --quiet keeps only the terminal quiet."""
    script = holter.script(
        """
        import time, holter
        for i in range(60):
            time.sleep(0.02)
            holter.step()
        time.sleep(600)
        """
    )
    process = holter.start("run", "-q", f"--notify={ear.url}", "--on-hang", "stop", "--", sys.executable, script)
    first = wait_for(lambda: ear.heard, "the notice of the hang")[0]
    _out, err = process.communicate(timeout=600)

    assert first["kind"] == "told"
    assert "no progress for" in first["text"]
    assert (process.returncode, err) == (124, b"")
    assert ear.heard[-1]["kind"] == "ended"
    assert ear.heard[-1]["ending"]["kind"] == "hung"


def test_a_server_that_never_answers_costs_a_moment_and_not_the_run(holter: Holter) -> None:
    """The exit code comes, within seconds, with one line on what went wrong."""
    silent = socket.create_server(("127.0.0.1", 0))
    begun = time.monotonic()
    done = holter(
        "run",
        f"--notify=http://127.0.0.1:{silent.getsockname()[1]}/",
        "--",
        sys.executable,
        "-c",
        "raise SystemExit(3)",
    )
    silent.close()

    assert done.returncode == 3
    assert time.monotonic() - begun < 120  # a server's own patience would be far longer
    assert done.stderr.decode().count("a notice could not be sent") == 1


def test_the_desktop_is_told_by_its_own_program(holter: Holter, tmp_path: Path) -> None:
    """notify-send gets the title and the text as words of their own; where it is missing, one line says so."""
    folder = tmp_path / "bin"
    folder.mkdir()
    missing = holter("run", "--notify", "--", sys.executable, "-c", SICK, env={"PATH": str(folder)})
    program = folder / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/told\n')
    program.chmod(0o755)
    there = holter("run", "--notify", "--", sys.executable, "-c", SICK, env={"PATH": str(folder)})
    arguments = (tmp_path / "told").read_text().splitlines()

    assert (missing.returncode, there.returncode) == (1, 1)
    assert b"notify-send is not installed. Install libnotify" in missing.stderr
    assert b"could not be sent" not in there.stderr
    assert arguments[:2] == ["--app-name=Holter", "--"]
    assert arguments[2].startswith("Holter: ")
    assert "ValueError" in arguments[3]


def test_on_a_mac_no_word_becomes_part_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are arguments of the script, whatever stands in them."""
    monkeypatch.setattr(notice.sys, "platform", "darwin")
    made = notice.desktop_command('a"', '" & (do shell script "true") & "')

    assert made[-2:] == ['a"', '" & (do shell script "true") & "']
    assert "do shell" not in made[2]


def test_an_address_that_is_none_is_told_before_the_run(holter: Holter) -> None:
    """Exit code 2, and the command is not started."""
    done = holter("run", "--notify=ftp://x", "--", "touch", "started")

    assert done.returncode == 2
    assert not (holter.folder / "started").exists()


def test_slack_gets_a_text_that_calls_nobody(holter: Holter, ear: Ear) -> None:
    """One field, as an incoming webhook wants it; what Slack would read as a mention or a link stays text."""
    script = "raise ValueError('<!channel> a & b')"
    holter("run", f"--notify=slack+{ear.url}", "--", sys.executable, "-c", script)

    (heard,) = ear.heard
    assert set(heard) == {"text"}
    assert "&lt;!channel&gt; a &amp; b" in heard["text"]
    assert heard["text"].startswith("Holter on ")


def test_ntfy_gets_title_message_and_priority_at_its_root(holter: Holter, ear: Ear) -> None:
    """The topic is the last part of the address; JSON that is sent to the topic itself would be shown as text."""
    holter("run", "--name", "odd", f"--notify=ntfy+{ear.url}", "--", sys.executable, "-c", SICK)

    (heard,) = ear.heard
    assert ear.paths == ["/"]
    assert (heard["topic"], heard["title"], heard["priority"]) == ("hook", "Holter: odd", 4)
    assert "ValueError" in heard["message"]


def test_the_services_own_addresses_need_no_word() -> None:
    """A form that is asked for stays; an unknown one is no address, and neither is a topic that is missing."""
    from holter.commands._notify import _address_of
    from holter.errors import UsageError

    assert _address_of("https://hooks.slack.com/services/T0/B0/x").form == "slack"
    assert _address_of("https://ntfy.sh/runs") == ("https://ntfy.sh/", "ntfy", "runs")
    assert _address_of("ntfy+https://box/push/runs") == ("https://box/push/", "ntfy", "runs")
    assert _address_of("https://box/hook?form=slack+x").form == ""
    for wrong in ("teams+https://x", "ntfy+https://box/", "slack+", "https://"):
        with pytest.raises(UsageError):
            _address_of(wrong)
