"""Builds records in memory: the few lines a case is about, on top of an ordinary run."""

from __future__ import annotations

from holter.record.reader import Record

MONO, WALL = 100.0, 1_700_000_000.0
TRAINER, WORKER = 10, 20
GB, MB = 1e9, 1e6


class BuiltRecord(Record):
    """A record in memory, to which lines are added."""

    def __init__(self, meta=None):
        super().__init__(meta or {})

    def lines(self, kind):
        """Give the lines of a kind as they are on disk, for a case that changes them."""
        return [line for line in (*self.events, *self.timeline) if line["k"] == kind]

    def event(self, kind, at, /, **fields):
        """Add an event `at` seconds into the run."""
        self.events.append({"k": kind, "m": MONO + at, "t": WALL + at, **fields})
        self.events.sort(key=lambda line: line["m"])
        return self

    def sample(self, at, **probes):
        """Add a sample of probes `at` seconds into the run."""
        self.timeline.append({"k": "sample", "m": MONO + at, "t": WALL + at, **probes})
        self.timeline.sort(key=lambda line: line["m"])
        return self

    def steps(self, at, last, n=10, pid=TRAINER, **fields):
        """Add a window of steps that ends `at` seconds into the run."""
        window = {"pid": pid, "n": n, "first": last - n + 1, "last": last, "sum": 1.0, **fields}
        self.timeline.append({"k": "steps", "m": MONO + at, "t": WALL + at, **window})
        self.timeline.sort(key=lambda line: line["m"])
        return self

    def exit(self, at, code=None, signal=None):
        """End the run: by a code, or by a signal as a name."""
        fields = {"exit_code": code, "signal": signal, "core": False}
        return self.event("exited", at, **fields).event("end", at + 0.1, **fields)


def ordinary_run(command=("python", "train.py"), seconds=60, planned=None, steps=True, **meta):
    """Make a run of a minute with a trainer, steps, and memory flat at 2 of 8 GB; it has not ended yet."""
    record = BuiltRecord(
        {
            "schema": 1,
            "id": "r-0142",
            "name": "",
            "command": list(command),
            "started": WALL,
            "mono": MONO,
            "host": "box",
            "platform": "Linux",
            "memory_total": 64 * GB,
            **meta,
        }
    )
    record.event("spawned", 0.1, pid=TRAINER)
    record.event("guest", 0.5, pid=TRAINER, ppid=1, role="trainer")
    record.event("adapter", 1, pid=TRAINER, framework="torch", version="2.13.0", state="on")
    if planned:
        record.event("plan", 2, pid=TRAINER, steps=planned, epochs=2, source="keras")
    for second in range(seconds):
        memory(record, second, 2 * GB)
        if steps and second >= 5:
            record.steps(second, (second - 4) * 10, epoch=1)
    return record


def memory(record, at, used, limit=8 * GB, oom_kill=0, rows=None):
    """Add a reading of the run's memory, as container and as tree."""
    listed = rows or [{"pid": TRAINER, "name": "python", "rss": used, "fds": 20, "state": "S"}]
    record.sample(
        at,
        processes={"rss": used, "threads": 4, "list": listed},
        cgroup={"path": "/a", "limit": limit, "usage": used, "file": 0, "oom_kill": oom_kill},
        vm={"oom_kill": 7},
    )
    return record


def without_memory(record, after):
    """Take away the samples from a second on, so that a case can write its own."""
    record.timeline = [line for line in record.timeline if line["k"] != "sample" or line["m"] < MONO + after]
    return record


def traceback_text(kind, message, line=7, file="/home/u/train.py"):
    """Write a traceback as Python prints it, with a library's frame innermost."""
    return (
        "Traceback (most recent call last):\n"
        f'  File "{file}", line {line}, in main\n'
        "    fit(model)\n"
        '  File "/venv/lib/python3.11/site-packages/lib/core.py", line 3, in fit\n'
        "    raise error\n"
        f"{kind}: {message}\n"
    )


def exception(record, at, kind, message, pid=TRAINER, line=7, **more):
    """Add the agent's event of an uncaught exception."""
    frames = [
        {"file": "/home/u/train.py", "line": line, "function": "main", "code": "fit(model)", "user": True},
        {"file": "/v/site-packages/lib/core.py", "line": 3, "function": "fit", "code": "raise", "user": False},
    ]
    return record.event("exception", at, pid=pid, type=kind, message=message, frames=frames, main=True, **more)


def causes(verdict):
    """Give the causes of a verdict in order."""
    return [finding.cause for finding in verdict.findings]
