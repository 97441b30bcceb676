"""Weights & Biases: its own process collects the numbers, from a port that is opened here for this one run.

W&B reads OpenMetrics endpoints that a setting names, and the setting can come from the environment. So nothing of ours
is in the training process, and the numbers lie with the other system metrics of the W&B run, online and offline. It has
numbers only: a finding shows as `holter_run_alarm`, and its words stay with Holter.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

from holter.errors import UsageError
from holter.views.export import Moment, News, Run, Ticket
from holter.views.web.metrics import CONTENT_TYPE, gauges_text

WHERE = ""
LISTENS = True

_VARIABLE = "WANDB__STATS_OPEN_METRICS_ENDPOINTS"  # known by this name to every release that has the setting


def environment(ticket: Ticket, base: Mapping[str, str]) -> dict[str, str]:
    """The user's own endpoints, and ours; the path has a word in it that keeps others on this machine out."""
    try:
        known = json.loads(base.get(_VARIABLE) or "{}")
        return {_VARIABLE: json.dumps({**known, "holter": f"http://127.0.0.1:{ticket.port}/{ticket.mark}"})}
    except (ValueError, TypeError):
        raise UsageError(f"{_VARIABLE} is not a JSON object", "Give it names and addresses, or unset it") from None


class Exporter:
    """Answers whoever knows the word."""

    def __init__(self, run: Run, report: Callable[[str], None]) -> None:
        self._run, self._report = run, report
        self._values: Mapping[str, float] = {}
        self._asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                known = self.path == f"/{outer._run.mark}"
                body = outer._text() if known else b""
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                """Nobody reads it."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = socket.socket(fileno=run.listener)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def numbers(self, moment: Moment) -> None:
        self._values = moment.values

    def news(self, item: News) -> None:
        """There is no place for words."""

    def close(self) -> None:
        if not self._asked:
            self._report("W&B never asked for the numbers. Is wandb.init called in the run, with system metrics on?")

    def _text(self) -> bytes:
        self._asked += 1
        return gauges_text({self._run.id: self._values}, {self._run.id: self._run.name}, self._run.meanings).encode()
