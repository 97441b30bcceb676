"""What `holter serve` costs: 200 runs of which 20 are on, nobody looking, someone at the list, someone at a run.

    python bench/serve.py [SECONDS]

Records are written by the record writer; the 20 get a sample and a window of steps each second. Prints the time to the
first page with all its rows, memory and CPU of the server with its reading desk, and a day's record: how long it takes
to open, how large its report is.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from holter.record import place
from holter.record.reader import boot_id, start_time
from holter.record.writer import RecordWriter

RUNS, ON = 1000, 20
GB = 1e9


def _gone() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


GONE = _gone()  # the recorder of a run that has ended


def sample(t: float, m: float, at: float) -> dict[str, Any]:
    used = 2 * GB + 0.4 * GB * math.sin(at / 900) + random.random() * 2e7
    rows = [
        {"pid": 10 + n, "ppid": 1, "name": "python", "state": "S", "rss": used / (1 + n), "swap": 0, "shared": 4e7,
         "cpu_s": at * 0.9, "majflt": 3, "threads": 9, "fds": 40}
        for n in range(9)
    ]  # fmt: skip
    return {
        "k": "sample", "t": t, "m": m,
        "processes": {"rss": used, "swap": 0, "cpu_s": at * 1.8, "threads": 80, "count": 9, "list": rows},
        "cgroup": {"version": 2, "path": "/x", "limit": 8 * GB, "usage": used, "file": 0, "oom_kill": 0},
        "memory": {"total": 64 * GB, "available": 40 * GB, "swap_total": 8 * GB, "swap_free": 8 * GB},
        "pressure": {name: {"some_us": at, "some10": 3 * random.random()} for name in ("memory", "cpu", "io")},
        "nvidia": {"list": [{"index": 0, "name": "GPU", "total": 80 * GB, "used": 3e10, "tree": 3e10, "util": 90}]},
        "guests": [{"pid": 10, "phase": "backward", "since": m, "activity": m, "step": int(at * 10), "epoch": 1}],
        "pace": "calm",
    }  # fmt: skip


def steps(t: float, m: float, at: float, seconds: float = 1.0) -> dict[str, Any]:
    n, last = int(10 * seconds), int(at * 10)
    loss = 2 / (1 + at / 3000) + random.random() / 5
    return {
        "k": "steps", "t": t, "m": m, "pid": 10, "n": n, "first": last - n + 1, "last": last, "sum": 0.95 * seconds,
        "min": 0.09, "max": 0.2, "data": 0.1 * seconds, "forward": 0.3 * seconds, "backward": 0.4 * seconds,
        "optimizer": 0.1 * seconds, "other": 0.05 * seconds, "epoch": 1, "seq": last,
        "loss": {"last": loss, "min": loss - 0.1, "max": loss + 0.3},
    }  # fmt: skip


def make(home: Path, length: float, *, ends: bool, every: float = 1.0) -> tuple[RecordWriter, float]:
    """A run that began `length` seconds ago; the writer's own clock is moved, so that it thins as it would have."""
    folder = place.new_run(home)
    mono, wall = time.monotonic() - length, time.time() - length
    now = [mono]
    writer = RecordWriter(folder, clock=lambda: now[0])
    pid = GONE if ends else os.getpid()
    meta = {
        "schema": 1,
        "id": folder.name,
        "name": "bench",
        "command": ["python", "train.py"],
        "cwd": "/",
        "started": wall,
    }
    meta |= {"mono": mono, "host": os.uname().nodename, "platform": "Linux", "cpus": 16, "memory_total": 64 * GB}
    writer.meta(
        {**meta, "recorder_pid": pid, "recorder_start": start_time(pid), "boot_id": boot_id(), "holter": "0.1.0"}
    )
    at_start = {"t": wall, "m": mono, "pid": 10}
    writer.events([{"k": "started", **at_start}, {"k": "guest", "role": "trainer", **at_start}])
    writer.events([{"k": "adapter", "framework": "torch", "version": "2.13", "state": "on", **at_start}])
    writer.events([{"k": "guest", "role": "worker", **at_start, "pid": 11 + n} for n in range(8)])
    at = 0.0
    while at < length:
        at += every
        now[0] = mono + at
        writer.timeline([sample(wall + at, mono + at, at), steps(wall + at, mono + at, at, every)])
    if ends:
        writer.events([{"k": "end", "t": wall + at, "m": mono + at, "exit_code": 0, "signal": None}])
        writer.close()
    writer._clock = time.monotonic
    return writer, mono


def grow(on: list[tuple[RecordWriter, float]], stop: threading.Event) -> None:
    while not stop.wait(1.0):
        for writer, mono in on:
            t, m = time.time(), time.monotonic()
            writer.timeline([sample(t, m, m - mono), steps(t, m, m - mono)])


def family(pid: int) -> list[int]:
    # A child stands with the thread that started it.
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(int(child) for found in children for child in found)]


def cpu(pid: int) -> float:
    """Seconds of the server and of what it has started, those that are gone too."""
    spent = 0.0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        spent += sum(int(fields[n]) for n in ((11, 12, 13, 14) if one == pid else (11, 12))) / os.sysconf("SC_CLK_TCK")
    return spent


def memory(pid: int) -> float:
    """Megabytes of the server and its reading process; the pages of files, which they share, count once."""
    own, shared = 0.0, 0.0
    for one in family(pid):
        said = dict(line.split(":") for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:])
        kept = {name: float(said[name].split()[0]) * 1024 for name in ("Rss", "Anonymous")}
        own, shared = own + kept["Anonymous"], max(shared, kept["Rss"] - kept["Anonymous"])
    return (own + shared) / 1e6


class Visitor:
    def __init__(self, address: str) -> None:
        self.base, _, token = address.partition("/?token=")
        port = self.base.rpartition(":")[2]
        self.headers = {"Cookie": f"holter-{port}={token}"}

    def open(self, path: str, timeout: float = 60) -> Any:
        return urllib.request.urlopen(urllib.request.Request(self.base + path, headers=self.headers), timeout=timeout)

    def get(self, path: str) -> bytes:
        with self.open(path) as answer:
            found: bytes = answer.read()
            return found

    def watch(self, run: str, until: float) -> int:
        """As the page does: the run is asked for again whenever there is news."""
        shown = 0
        with self.open(f"/events?run={run}") as news:
            while time.monotonic() < until:
                if news.readline().startswith(b"event: changed"):
                    self.get(f"/api/run/{run}?columns=900")
                    shown += 1
        return shown


def over(pid: int, seconds: float) -> str:
    begun, before = time.monotonic(), cpu(pid)
    time.sleep(seconds)
    return f"{100 * (cpu(pid) - before) / (time.monotonic() - begun):.1f} % of a core, {memory(pid):.0f} MB"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        print("writing the records ...", file=sys.stderr)
        make(home, 86_400, ends=True)
        for _ in range(RUNS - ON - 1):
            make(home, 120, ends=True)
        on = [make(home, 600, ends=False) for _ in range(ON)]
        stop = threading.Event()
        threading.Thread(target=grow, args=(on, stop), daemon=True).start()
        environ = {**os.environ, "HOLTER_HOME": str(home)}
        serve = [sys.executable, "-m", "holter", "serve", "--port", "0"]
        with subprocess.Popen(serve, env=environ, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                visitor = Visitor(server.stdout.readline().strip())
                measure(server.pid, visitor, seconds, environ)
            finally:
                stop.set()
                server.terminate()


def measure(pid: int, visitor: Visitor, seconds: float, environ: dict[str, str]) -> None:
    print(f"| {RUNS} runs, {ON} of them on | |\n|---|---|")
    begun = time.monotonic()
    visitor.get("/")
    rows = json.loads(visitor.get("/api/runs"))["runs"]
    took = time.monotonic() - begun
    assert (len(rows), sum(row["live"] for row in rows)) == (RUNS, ON)
    print(f"| first page with its {len(rows)} rows | {took * 1e3:.0f} ms |", flush=True)
    while not all(row["known"] or row["live"] for row in json.loads(visitor.get("/api/runs"))["runs"]):
        time.sleep(0.5)
    print(f"| the verdicts on all that have ended are known after | {time.monotonic() - begun:.0f} s |", flush=True)
    time.sleep(26)  # the reading desk is put away
    print(f"| nobody looks | {over(pid, seconds)} |", flush=True)
    with visitor.open("/events"):
        time.sleep(3)
        print(f"| someone looks at the list | {over(pid, seconds)} |", flush=True)
    run = f"r-{RUNS:04d}"
    visitor.get(f"/api/run/{run}?columns=900")
    until = time.monotonic() + seconds + 2
    shown: list[int] = []
    watching = threading.Thread(target=lambda: shown.append(visitor.watch(run, until)))
    watching.start()
    cost = over(pid, seconds)
    watching.join()
    print(f"| someone watches a run that is on | {cost}; shown anew {shown[0]} times in {seconds:.0f} s |", flush=True)
    time.sleep(26)
    with visitor.open("/events"):  # as from the list: the desk is warm when a run is clicked
        time.sleep(1)
    begun = time.monotonic()
    answer = visitor.get("/api/run/r-0001/charts?columns=900")
    curves = time.monotonic() - begun
    visitor.get("/api/run/r-0001/words")
    print(f"| a day's record: its curves ({len(answer) / 1e3:.0f} KB) | {curves:.2f} s |")
    print(f"| and its verdict | {time.monotonic() - begun:.2f} s |")
    begun = time.monotonic()
    visitor.get("/api/run/r-0001/charts?columns=900&begin=80000&end=86000")
    print(f"| zooming into it | {(time.monotonic() - begun) * 1e3:.0f} ms |")
    made = subprocess.run(
        [sys.executable, "-m", "holter", "report", "r-0001", "-o", "-"], env=environ, capture_output=True, check=True
    )
    print(f"| its report in one file | {len(made.stdout) / 1e3:.0f} KB |", flush=True)


if __name__ == "__main__":
    main()
