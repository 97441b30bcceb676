"""Tells someone who does not look at the terminal: on the desktop, or with one POST of JSON.

Each notice is sent by a short process of its own: a slow network, a desktop that does not answer or an error of ours
never keeps the recorder from its work, and the training least of all.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from typing import Any

from holter.own_process import own_process

_TIMEOUT = 5.0  # seconds for one POST
_WAIT = 6.0  # seconds at the end of the run for notices that are still on their way
_MAX_NOTICES = 50  # notices of one run: a run that stumbles on for days is not to fill a channel
# The words come as arguments: nothing in them can become part of the script.
_MAC_SCRIPT = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"


class Notices:
    """Sends notices to a URL, or to the desktop where there is none; remembers what went wrong."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._on_their_way: list[subprocess.Popen[bytes]] = []
        self._sent = 0
        self.failed = ""

    def send(self, notice: dict[str, Any]) -> None:
        """Start the process that sends a notice, and go on; never raises."""
        self._look()
        if self._sent >= _MAX_NOTICES:
            return
        self._sent += 1
        try:
            process = subprocess.Popen(
                own_process("holter.recorder.launch.notice"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(json.dumps({"url": self._url, "notice": notice}, default=str).encode())
            process.stdin.close()
            self._on_their_way.append(process)
        except OSError as error:
            self.failed = str(error)

    def close(self) -> None:
        """Wait a moment for those that are on their way, and end those that take longer."""
        deadline = time.monotonic() + _WAIT
        for process in self._on_their_way:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.failed = f"it took longer than {_WAIT:.0f} s"
        self._look()

    def _look(self) -> None:
        for process in [one for one in self._on_their_way if one.poll() is not None]:
            self._on_their_way.remove(process)
            output = process.stdout.read().decode("utf-8", "replace").strip() if process.stdout is not None else ""
            if process.stdout is not None:
                process.stdout.close()
            self.failed = output[:200] or self.failed


def post(url: str, notice: dict[str, Any]) -> None:
    """One POST; what is answered is not read."""
    body = json.dumps(notice, default=str).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "Holter"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=_TIMEOUT).close()


def on_desktop(notice: dict[str, Any]) -> None:
    """By the desktop's own program."""
    title = "Holter: " + str(notice["run"].get("name") or notice["run"].get("command") or "a run")
    command = desktop_command(title, str(notice["text"]))
    subprocess.run(command, check=True, timeout=_TIMEOUT, stdin=subprocess.DEVNULL, capture_output=True)


def desktop_command(title: str, text: str) -> list[str]:
    """What shows a notice on this desktop; the text is never taken for an option."""
    if sys.platform == "darwin":
        return ["osascript", "-e", _MAC_SCRIPT, title, text]
    program = shutil.which("notify-send")  # it comes with libnotify
    if program is None:
        raise OSError("notify-send is not installed. Install libnotify, or give a URL: --notify=URL")
    return [program, "--app-name=Holter", "--", title, text]


def main() -> None:
    """Send the notice on stdin; what goes wrong is said on stdout, for whoever started this."""
    asked = json.load(sys.stdin)
    try:
        if asked["url"]:
            post(asked["url"], asked["notice"])
        else:
            on_desktop(asked["notice"])
    except Exception as error:
        print(error)


if __name__ == "__main__":
    main()
