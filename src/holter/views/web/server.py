"""The server of the pages: standard library, one thread for each page that is open; it reads, and labels or deletes."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from holter.errors import HolterError
from holter.views.web import metrics, page
from holter.views.web.auth import Auth
from holter.views.web.reading import Reading, Unreadable
from holter.views.web.watcher import Runs, Watcher

_MOST_READERS = 128
_STRANGERS_HAVE = 10.0  # seconds to show the token
_HEARTBEAT = 15.0
_MOST_SAID = 64_000  # bytes of a request
_RUN = re.compile(r"/api/run/([^/]+)(?:/(charts|words))?")
_CHANGES = {
    "POST": re.compile(r"/api/run/([^/]+)/(tags|note)"),
    "DELETE": re.compile(r"/api/run/([^/]+)()"),
}
_PAGES = re.compile(r"/|/run/[^/]+|/compare(?:/[^/]+){2,8}")
_NO_TOKEN = (
    "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><title>Holter</title>"
    "<link rel=stylesheet href=/page/style.css><div class=notice><h1>This page needs its token</h1>"
    "<p>Open the whole address that holter serve printed, with what follows the question mark.</p></div>"
)


class Server(ThreadingHTTPServer):
    """Everything that a request can reach: the parts of the page, the rows, and runs by their id."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], runs: Runs, reading: Reading, auth: Auth) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)
        self.runs, self.reading, self.auth = runs, reading, auth
        self.watcher = Watcher(runs, reading)
        self.slots = threading.BoundedSemaphore(_MOST_READERS)
        self._strangers: dict[Any, float] = {}  # connections that have not shown the token, the oldest first
        self._lock = threading.Lock()
        auth.at(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.slots.acquire(blocking=False):
            # A flood of connections costs the flood: whoever has waited longest to say who they are makes room.
            self._turn_away(most=1)
            if not self.slots.acquire(timeout=1.0):
                self.shutdown_request(request)
                return
        with self._lock:
            self._strangers[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.let_in(request)
            self.slots.release()

    def let_in(self, request: Any) -> None:
        """This connection has shown the token, or is over."""
        with self._lock:
            self._strangers.pop(request, None)

    def service_actions(self) -> None:
        """Now and then: a connection that sends a byte a second would stay for ever otherwise."""
        self._turn_away(before=time.monotonic() - _STRANGERS_HAVE)

    def _turn_away(self, most: int = _MOST_READERS, before: float = float("inf")) -> None:
        with self._lock:
            old = [request for request, since in self._strangers.items() if since < before][:most]
            for request in old:
                del self._strangers[request]
        for request in old:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and goes

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Holter", ""
    timeout = 60
    known = False  # whether this connection has shown the token

    def do_HEAD(self) -> None:
        """As GET, without what would follow: a link checker or a proxy only asks whether it is there."""
        self.do_GET()

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query, max_num_fields=20).items()}
        auth = self.server.auth
        self.known = (
            auth.is_token(asked.get("token", ""))
            or auth.has_cookie(self.headers.get("Cookie"))
            or auth.has_bearer(self.headers.get("Authorization"))
        )
        if self.known:
            self.server.let_in(self.connection)
        if not auth.knows_host(self.headers.get("Host")):
            self._respond(403, "text/plain", b"This name is not one of this machine's: ask for it with --host NAME.\n")
        elif "token" in asked and auth.is_token(asked["token"]):
            rest = urlencode({name: value for name, value in asked.items() if name != "token"})
            path = "/" + address.path.lstrip("/")  # two slashes would name another machine
            self._respond(
                303, "text/plain", b"", Location=path + (f"?{rest}" if rest else ""), Set_Cookie=auth.cookie()
            )
        elif address.path == "/page/style.css":
            self._file("style.css")
        elif address.path == "/metrics" and auth.has_bearer(self.headers.get("Authorization")):
            self._metrics()
        elif not auth.has_cookie(self.headers.get("Cookie")):
            self._respond(403, "text/html; charset=utf-8", _NO_TOKEN.encode())
        else:
            self._answer(address.path, asked)

    def _answer(self, path: str, asked: dict[str, str]) -> None:
        found = _RUN.fullmatch(path)
        if _PAGES.fullmatch(path):
            self._respond(200, "text/html; charset=utf-8", page.served_page())
        elif path.startswith("/page/"):
            self._file(path.removeprefix("/page/"))
        elif path == "/api/runs":
            self._json(json.dumps({"runs": self.server.watcher.rows()}).encode())
        elif path == "/metrics":
            self._metrics()
        elif path == "/events":
            self.server.reading.warm()
            self._events(asked.get("run"))
        elif found is not None and found[1] in self.server.runs.ids():
            self._run(found[1], found[2] or "run", asked)
        else:
            self._respond(404, "application/json", b'{"error":"there is no such run"}')

    def do_POST(self) -> None:
        self._change()

    def do_DELETE(self) -> None:
        self._change()

    def _change(self) -> None:
        """Write tags or a note on a run, or delete it: with the token, and from our own page."""
        auth = self.server.auth
        self.close_connection = True  # what was sent along may not have been read to its end
        found = _CHANGES[self.command].fullmatch(urlsplit(self.path).path)
        if not auth.knows_host(self.headers.get("Host")) or not auth.may_change(self.headers):
            self._respond(403, "text/plain", b"A change needs the token, and comes from a page of this server.\n")
        elif found is None or found[1] not in self.server.runs.ids():
            self._respond(404, "application/json", b'{"error":"there is no such run"}')
        else:
            self.known = True
            self.server.let_in(self.connection)
            try:
                self._json(json.dumps(self._changed(found[1], found[2])).encode())
            except ValueError:
                self._respond(400, "application/json", b'{"error":"this is not what a change looks like"}')
            except HolterError as error:
                self._respond(409, "application/json", json.dumps({"error": str(error)}).encode())

    def _changed(self, run: str, what: str) -> dict[str, Any]:
        runs, said = self.server.runs, self._said()
        if what == "tags":
            runs.tag(run, _texts(said.get("add")), _texts(said.get("remove")))
        elif what == "note":
            (note,) = _texts([said.get("note")])
            runs.note(run, note)
        else:
            runs.delete(run)
        self.server.watcher.rows()  # whoever has the list open is told
        return runs.labels(run) if what else {"deleted": run}

    def _said(self) -> dict[str, Any]:
        """What came with the request: JSON, and not much of it."""
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= _MOST_SAID:
            raise ValueError(length)
        said = json.loads(self.rfile.read(length) or b"{}")
        if not isinstance(said, dict):
            raise ValueError("not an object")
        return said

    def _metrics(self) -> None:
        runs, rows = self.server.runs, self.server.watcher.rows()
        gauges = {row["id"]: runs.gauges(row["id"]) for row in rows if row["live"]}
        self._respond(200, metrics.CONTENT_TYPE, metrics.metrics_text(rows, gauges, runs.meanings()).encode())

    def _file(self, name: str) -> None:
        raw = page.page_files().get(name)  # from a table: no path of the request ever reaches the disk
        if raw is None:
            self._respond(404, "text/plain", b"not found\n")
        else:
            self._respond(200, page.content_type(name), raw)

    def _run(self, run: str, what: str, asked: dict[str, str]) -> None:
        folder = str(self.server.runs.folder(run))
        request: dict[str, Any] = {"do": what, "folder": folder}
        for name in ("columns", "begin", "end"):
            number = _number(asked.get(name))
            request |= {name: number} if number is not None else {}
        request |= {"chart": asked["chart"]} if "chart" in asked else {}
        try:
            answer, took = self.server.reading.ask(**request)
        except Unreadable as error:
            self._respond(422, "application/json", json.dumps({"error": str(error)}).encode())
            return
        self.server.watcher.shown(run, took)
        self._json(answer)

    def _events(self, run: str | None) -> None:
        """What is new, as it comes; a line now and then finds out whether the reader is still there."""
        if run is not None and run not in self.server.runs.ids():
            self._respond(404, "text/plain", b"there is no such run\n")
            return
        self._head(200, "text/event-stream", Cache_Control="no-store", Connection="close")
        self.close_connection = True
        if self.command == "HEAD":
            return
        reader = self.server.watcher.join(run)
        try:
            self.wfile.write(b"retry: 2000\n\n")
            while True:
                try:
                    kind, text = reader.news.get(timeout=_HEARTBEAT)
                    self.wfile.write(f"event: {kind}\ndata: {text}\n\n".encode())
                except queue.Empty:
                    # An event, no comment: a page that has slept knows by its absence that it hears nothing any more.
                    self.wfile.write(b"event: beat\ndata:\n\n")
        except OSError:
            pass
        finally:
            self.server.watcher.leave(reader)

    def _json(self, body: bytes) -> None:
        self._respond(200, "application/json", body)

    def _respond(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self._head(status, kind, Content_Length=str(len(body)), Cache_Control="no-store", **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", page.policy())
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if not self.known:
            self.close_connection = True
            headers = {"Connection": "close", **headers}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        self.close_connection = True
        self._respond(code, "text/plain", b"this can't be answered\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Say nothing: the terminal is for the address."""


def _texts(said: Any) -> list[str]:
    """A list of texts; raises ValueError for anything else."""
    found = [] if said is None else said
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("not a list of texts")
    return found


def _number(text: str | None) -> float | None:
    try:
        found = float(text) if text is not None and len(text) < 40 else None
    except ValueError:
        return None
    return found if found is not None and abs(found) < 1e12 else None
