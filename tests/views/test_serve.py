"""The server at its door: who comes in, what can be reached, and what stays text."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from urllib.parse import quote

import pytest
from tests.conftest import HOLTER
from tests.views.conftest import keep
from tests.views.records import healthy_run, leaking_run, raising_run

from holter.views.web.reading import Reading, Unreadable

SECRET = "only-the-owner-may-read-this"


@pytest.fixture
def served(tmp_path, serve):
    home = tmp_path / "home"
    keep(leaking_run(), home)
    keep(raising_run(), home)
    (tmp_path / "secret.txt").write_text(SECRET)
    return serve(home)


@pytest.mark.parametrize("path", ["/", "/run/r-0001", "/api/runs", "/api/run/r-0001", "/events", "/page/main.js"])
@pytest.mark.parametrize("cookie", ["", "holter-1=x", "no cookie at all;;;=", "wrong"])
def test_without_the_token_nothing_is_told(served, path, cookie):
    """Neither a page nor a row nor whether a run exists."""
    given = served.cookie[:-3] + "abc" if cookie == "wrong" else cookie

    status, _headers, body = served.ask(path, Cookie=given)

    assert status == 403
    assert b"r-0001" not in body


@pytest.mark.parametrize("token", ["", "x", "%00", "é", "x" * 5000])
def test_a_wrong_token_opens_nothing(served, token):
    """Whatever stands in the address."""
    status, headers, body = served.ask(f"/?token={quote(token)}", Cookie="")

    assert (status, "Set-Cookie" in headers) == (403, False)
    assert b"needs its token" in body


def test_the_token_becomes_a_cookie_and_leaves_the_address(served):
    """No token stays in the history of the browser; scripts can't read the cookie."""
    status, headers, _body = served.ask(f"/run/r-0001?token={served.token}&x=1", Cookie="")

    assert (status, headers["Location"]) == (303, "/run/r-0001?x=1")
    assert headers["Set-Cookie"] == f"{served.cookie}; HttpOnly; SameSite=Lax; Path=/"


def test_a_redirect_never_leads_to_another_machine(served):
    """Two slashes at the front would be a machine's name."""
    _status, headers, _body = served.ask(f"//evil.example/?token={served.token}", Cookie="")

    assert headers["Location"] == "/evil.example/"


@pytest.mark.parametrize(
    ("host", "welcome"),
    [("127.0.0.1:1", True), ("localhost:99", True), ("[::1]:8", True), ("10.7.7.7", True), (socket.gethostname(), True),
     ("evil.example", False), ("127.0.0.1.evil.example", False), ("localhost.evil.example:80", False), ("", False)],
)  # fmt: skip
def test_a_name_that_is_not_this_machines_is_turned_away(served, host, welcome):
    """A page elsewhere could rebind its own name to this address, and would then be let in by the cookie."""
    status, _headers, body = served.ask("/api/runs", Host=host)

    assert (status == 200) is welcome, body


@pytest.mark.parametrize(
    "path",
    ["/page/../../../secret.txt", "/page/%2e%2e/secret.txt", "/page//etc/passwd", "/page/..%2f..%2fpage.py",
     "/api/run/..", "/api/run/%2e%2e%2f%2e%2e%2fsecret.txt", "/api/run/../../secret.txt", "/api/run/r-0001/../../x",
     "/api/run/r-0001%00", "/api/run//etc/passwd", "/secret.txt", "/../secret.txt", "/page/", "/page/uplot/LICENSE"],
)  # fmt: skip
def test_no_path_leads_out_of_the_records(served, path):
    """A run is found by its id in the list of runs, a part of the page in a table: no path ever reaches the disk."""
    connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
    connection.putrequest("GET", path, skip_host=True)  # as it is: no client tidies it up
    connection.putheader("Host", "localhost")
    connection.putheader("Cookie", served.cookie)
    connection.endheaders()
    answer = connection.getresponse()

    assert answer.status == 404
    assert SECRET.encode() not in answer.read()


def test_a_link_among_the_runs_is_not_followed(served, tmp_path):
    """A record that lies elsewhere is no run of this home, whatever its name is."""
    other = keep(healthy_run(), tmp_path / "other")
    (served.home / "runs" / "r-0077").symlink_to(other)

    assert served.ask("/api/run/r-0077")[0] == 404
    assert "r-0077" not in [row["id"] for row in served.json("/api/runs")["runs"]]


def send(served, method, path, said=None, **headers):
    """A request as our own page makes it, but for the headers that are given; None leaves one out."""
    own = {"Cookie": served.cookie, "Holter-Change": "1", "Origin": served.base, "Content-Type": "application/json"}
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
    body = said if isinstance(said, bytes) else json.dumps(said or {})
    connection.request(method, path, body, {name: value for name, value in own.items() if value is not None})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_tags_a_note_and_deletion_are_all_that_can_be_changed(served):
    """Other methods and other addresses lead nowhere."""
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE"):
        assert send(served, method, "/api/run/r-0001")[0] == 501
    for method, path in (
        ("POST", "/api/run/r-0001"), ("POST", "/api/run/r-0001/name"), ("DELETE", "/api/run/r-0001/note"),
        ("DELETE", "/api/run/../../secret.txt"), ("DELETE", "/api/run/r-0099"), ("POST", "/api/runs"),
    ):  # fmt: skip
        assert send(served, method, path, {"note": "x"})[0] == 404, path
    assert served.json("/api/run/r-0001")["run"]["note"] == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": None},
        {"Cookie": "holter-1=x"},
        {"Holter_Change": None},  # a form or a script of another page, which the browser lets through with the cookie
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},  # another server on this machine
        {"Origin": "null"},
        {"Authorization": "Bearer wrong", "Cookie": None},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
def test_a_change_needs_the_token_and_our_own_page(served, headers):
    """The cookie that a browser sends along by itself is not enough."""
    assert send(served, "DELETE", "/api/run/r-0001", **headers)[0] == 403
    assert send(served, "POST", "/api/run/r-0001/tags", {"add": ["x"]}, **headers)[0] == 403
    assert served.json("/api/run/r-0001")["run"]["tags"] == []


def test_a_program_with_the_token_may_change_too(served):
    """As a bearer's, without being a page."""
    headers = {"Cookie": None, "Origin": None, "Holter_Change": None, "Authorization": f"Bearer {served.token}"}

    assert send(served, "POST", "/api/run/r-0001/tags", {"add": ["x"]}, **headers)[0] == 200


@pytest.mark.parametrize(
    "said",
    [b"", b"{", b"[]", b'{"add": "x"}', b'{"add": [1]}', b'{"add": {"a": 1}}', b"\xff", b"{" * 5000, b"x" * 100_000],
)
def test_a_change_that_makes_no_sense_is_refused(served, said):
    """Whatever comes; nothing is written and the server goes on."""
    status, _body = send(served, "POST", "/api/run/r-0001/tags", said)

    assert status == (200 if said == b"" else 400)
    assert served.json("/api/run/r-0001")["run"]["tags"] == []


def test_what_is_written_on_a_run_is_what_the_command_line_writes(served):
    """The same labels, the same limits, told in the same words; whoever has the list open hears of it."""
    connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
    connection.request("GET", "/events", headers={"Cookie": served.cookie})
    news = connection.getresponse()
    served.json("/api/runs")
    tagged = send(served, "POST", "/api/run/r-0001/tags", {"add": ["best", "<b>"], "remove": ["old"]})
    noted = send(served, "POST", "/api/run/r-0001/note", {"note": "a\nb"})
    too_long = send(served, "POST", "/api/run/r-0001/note", {"note": "x" * 5000})
    environ = {**os.environ, "HOLTER_HOME": str(served.home)}
    subprocess.run([*HOLTER, "tag", "r-0002", "cli"], env=environ, check=True)
    told = _until(news, lambda text: '"cli"' in text)

    assert json.loads(tagged[1]) == {"name": "", "tags": ["best", "<b>"], "note": ""}
    assert (noted[0], too_long[0]) == (200, 409)
    assert b"5,000 letters; 4,000 fit" in too_long[1]
    assert '"best"' in told
    rows = {row["id"]: row for row in served.json("/api/runs")["runs"]}
    assert (rows["r-0001"]["note"], rows["r-0002"]["tags"]) == ("a\nb", ["cli"])
    assert served.json("/api/run/r-0001")["run"]["note"] == "a\nb"


def test_a_run_is_deleted_for_good_but_not_one_that_is_on(served, holter, serve, wait_for):
    """As `holter rm` does it; its number is not given again."""
    assert send(served, "DELETE", "/api/run/r-0002") == (200, b'{"deleted": "r-0002"}')
    assert [row["id"] for row in served.json("/api/runs")["runs"]] == ["r-0001"]
    assert not (served.home / "runs" / "r-0002").exists()
    assert keep(healthy_run(), served.home).name == "r-0003"
    run = holter.start("run", "-q", "--", "sleep", "600")
    meta = wait_for(lambda: next(holter.home.rglob("r-0004/record.json"), None), "its record")
    status, said = send(serve(holter.home), "DELETE", "/api/run/r-0004")
    run.terminate()
    run.wait(600)

    assert status == 409
    assert b"still being recorded" in said
    assert meta.exists()


@pytest.mark.parametrize("path", ["/", "/run/r-0001", "/api/runs", "/api/run/r-0001/charts", "/events", "/metrics"])
def test_head_is_answered_as_get_without_the_body(served, path):
    """For whoever only asks whether it is there; a connection that stays can be used again."""
    connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
    connection.request("HEAD", path, headers={"Cookie": served.cookie})
    answer = connection.getresponse()

    assert (answer.status, answer.read()) == (200, b"")
    connection.request("HEAD", "/nowhere", headers={"Cookie": served.cookie})
    assert connection.getresponse().status == 404
    assert served.ask(path.replace("/events", "/"), Cookie="")[0] == 403


def test_the_page_may_run_only_its_own_scripts_and_talk_only_to_its_server(served):
    """Said to the browser with every answer; no other page may frame it or read from it."""
    for path in ("/", "/api/runs", "/page/main.js", "/nowhere"):
        _status, headers, _body = served.ask(path)
        policy = headers["Content-Security-Policy"]

        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_damaged_record_costs_only_itself(served):
    """Its row says so, its page says why, and the others are shown."""
    meta = served.home / "runs" / "r-0001" / "record.json"
    meta.write_bytes(meta.read_bytes()[:50])

    status, _headers, body = served.ask("/api/run/r-0001")
    rows = {row["id"]: row for row in served.json("/api/runs")["runs"]}

    assert (status, "damaged" in json.loads(body)["error"]) == (422, True)
    assert rows["r-0001"]["kind"] == "unreadable"
    assert served.json("/api/run/r-0002")["ending"]["kind"] == "exception"


def test_a_reading_desk_that_is_killed_is_replaced(served, wait_for):
    """A record too large for the machine takes the reader down, not the server."""
    served.json("/api/run/r-0001")
    children = wait_for(lambda: _children(served.process.pid), "the worker")
    for pid in children:
        os.kill(pid, signal.SIGKILL)

    assert served.json("/api/run/r-0002")["run"]["id"] == "r-0002"


def test_a_desk_that_is_gone_before_the_question_is_a_reason_and_no_error():
    """It is still there when it is looked for, and does not read any more."""
    reading = Reading(["sh", "-c", "exec 0<&-; sleep 0.6"])
    reading.warm()
    time.sleep(0.3)

    with pytest.raises(Unreadable, match="the process that reads records was ended"):
        reading.ask(run="r-0001")
    reading.close()


def _children(pid):
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def test_slow_connections_do_not_lock_the_owner_out(served):
    """Whoever holds a place without showing the token makes room, the oldest first."""
    host, _, port = served.base.removeprefix("http://").rpartition(":")
    slow = [socket.create_connection((host, int(port)), timeout=600) for _ in range(132)]
    for one in slow:
        one.sendall(b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n")

    assert {row["id"] for row in served.json("/api/runs")["runs"]} == {"r-0001", "r-0002"}
    assert slow[0].recv(1) == b""
    for one in slow:
        one.close()


def test_an_answer_to_a_stranger_ends_the_connection_and_the_owners_stays(served):
    """So that nobody without the token holds a place; a page asks for its parts on one connection."""
    for cookie, kept in (("", False), (served.cookie, True)):
        connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
        connection.request("GET", "/api/runs", headers={"Cookie": cookie})
        connection.getresponse().read()

        assert (connection.sock is not None) is kept
        connection.close()


def test_a_run_that_is_deleted_while_it_is_read_does_not_end_the_verdicts(served, wait_for):
    """The worker finds nothing where the run was; the next run gets its verdict all the same."""
    served.json("/api/run/r-0001")
    (worker,) = wait_for(lambda: _children(served.process.pid), "the worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        keep(healthy_run(), served.home)
        served.json("/api/runs")
        wait_for(lambda: _waits_for_an_answer(served.process.pid), "the question about the new run")
        (served.home / "runs" / "r-0007").mkdir()  # so that no other run gets the number
        shutil.rmtree(served.home / "runs" / "r-0003")
        served.json("/api/runs")
    finally:
        os.kill(worker, signal.SIGCONT)
    keep(healthy_run(), served.home)
    rows = wait_for(lambda: _known(served, "r-0008"), "the verdict on a later run")

    assert rows["r-0008"]["kind"] == "completed"


def _waits_for_an_answer(pid):
    """Whether a thread of the server's stands in a read of a pipe."""
    tasks = f"/proc/{pid}/task"
    return any("pipe_read" in _text(f"{tasks}/{task}/wchan") for task in os.listdir(tasks)) or time.sleep(1.0) is None


def _text(path):
    with open(path) as file:
        return file.read()


def _known(served, run):
    rows = {row["id"]: row for row in served.json("/api/runs")["runs"]}
    return rows if rows.get(run, {}).get("known") else None


def test_a_run_that_is_seen_before_its_first_line_is_not_unreadable_for_ever(served, wait_for):
    """Its folder is there a moment before its facts."""
    early = served.home / "runs" / "r-0003"
    early.mkdir()
    before = {row["id"]: row["kind"] for row in served.json("/api/runs")["runs"]}
    early.rmdir()
    made = keep(healthy_run(), served.home)
    rows = wait_for(
        lambda: (found := _known(served, "r-0003")) and found["r-0003"]["kind"] != "unreadable" and found, "a verdict"
    )

    assert (made.name, before["r-0003"], rows["r-0003"]["kind"]) == ("r-0003", "unreadable", "completed")


def test_news_of_a_new_run_and_of_one_that_is_gone(served):
    """Whoever has the list open is told, without asking again."""
    connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
    connection.request("GET", "/events", headers={"Cookie": served.cookie})
    news = connection.getresponse()
    served.json("/api/runs")
    keep(healthy_run(), served.home, "fresh")
    events = _until(news, lambda text: '"r-0003"' in text and '"completed"' in text)
    shutil.rmtree(served.home / "runs" / "r-0003")
    gone = _until(news, lambda text: "event: gone\ndata: r-0003" in text)

    assert '"name": "fresh"' in events
    assert gone


def test_a_run_whose_recorder_is_killed_does_not_run_on_for_ever(holter, serve, wait_for):
    """Nothing is written any more; whoever watches is told all the same, and finds it ended."""
    run = holter.start("run", "-q", "--", "sleep", "600")
    wait_for(lambda: holter.timeline("sample"), "the first sample")
    served = serve(holter.home)
    assert served.json("/api/run/r-0001")["ending"]["kind"] == "running"
    connection = http.client.HTTPConnection(served.base.removeprefix("http://"), timeout=600)
    connection.request("GET", "/events?run=r-0001", headers={"Cookie": served.cookie})
    news = connection.getresponse()
    run.kill()
    run.wait()
    silent = time.monotonic() + 3
    events = _until(news, lambda text: text.endswith("event: changed\n") and time.monotonic() > silent)
    os.kill(holter.events("spawned")[0]["pid"], signal.SIGKILL)

    assert events.endswith("event: changed\n")
    assert served.json("/api/run/r-0001")["ending"]["kind"] != "running"


def _until(news, right, seconds=600):
    text, end = "", time.monotonic() + seconds
    while time.monotonic() < end and not right(text):
        text += news.readline().decode()
    return text


def test_ctrl_c_ends_it_and_its_desk(served):
    """At once, with exit code 0 and nothing left behind."""
    served.json("/api/run/r-0001")
    desks = _children(served.process.pid)
    served.process.send_signal(signal.SIGINT)

    assert served.process.wait(600) == 0
    assert desks
    assert all(subprocess.run(["ps", "-p", str(pid)], capture_output=True).returncode for pid in desks)


def test_a_port_that_is_taken_is_told(served):
    """One line with the way out; without --port another one is taken."""
    port = served.base.rpartition(":")[2]
    done = subprocess.run([*HOLTER, "serve", "--port", port], capture_output=True, text=True, timeout=600)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "--port" in done.stderr


def test_listening_for_others_has_to_be_asked_for_and_is_said(tmp_path, serve):
    """By default only this machine reaches it."""
    command = [*HOLTER, "serve", "--host", "0.0.0.0", "--port", "0"]
    environ = {"HOLTER_HOME": str(tmp_path), "PATH": "/usr/bin"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    address = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _out, stderr = process.communicate(timeout=600)

    assert address.startswith("http://127.0.0.1:")
    assert "whoever has this address" in stderr
    assert serve(tmp_path).base.startswith("http://127.0.0.1:")
