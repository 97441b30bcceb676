"""Runs of several kinds, built line by line: what the views are tried on."""

from __future__ import annotations

from build import GB, MB, TRAINER, exception, memory, ordinary_run, without_memory


def leaking_run():
    """Memory from 1 to 8 GB in a minute, then the kernel's kill; with losses, a split of each step and a forecast."""
    record = without_memory(ordinary_run(planned=9380), 0)
    for line in record.timeline:
        if line["k"] == "steps":
            line |= {"data": 0.2, "forward": 0.3, "backward": 0.4, "sum": 1.0}
            line["loss"] = {"last": 2.0 - line["last"] / 500, "min": 0.5, "max": 2.5}
    for second in range(60):
        memory(record, second, 1 * GB + second * 6.9 * GB / 60)
    record.event(
        "forecast", 20, what="memory", text="out of memory in about 40 s, at step 550", used=3.3 * GB, limit=8 * GB,
        when=1_700_000_060.0, earliest=1_700_000_055.0, latest=1_700_000_070.0,
    )  # fmt: skip
    return memory(record, 60.2, 1 * MB, oom_kill=1).exit(60, 137, "SIGKILL")


def healthy_run():
    return ordinary_run(planned=550).exit(60, 0)


def nan_run():
    """Its loss is no number for a while, comes back, and is lost for good."""
    record = ordinary_run(planned=550)
    for line in record.timeline:
        if line["k"] == "steps":
            step = line["last"]
            if 250 <= step < 300 or step > 480:
                line["bad_loss"] = line["first"]
                line.pop("loss", None)
            else:
                line["loss"] = {"last": 2.0 - step / 500, "min": 1.9 - step / 500, "max": 2.4 - step / 500}
    return record.exit(60, 0)


def slow_run():
    """It completes, and waits for data four fifths of its time."""
    record = ordinary_run(planned=550)
    for line in record.timeline:
        if line["k"] == "steps":
            line |= {"data": 0.8, "forward": 0.05, "backward": 0.1, "optimizer": 0.02, "sum": 1.0}
    return record.exit(60, 0)


def raising_run():
    return exception(ordinary_run(), 59, "ValueError", "bad shape").exit(60, 1)


def hanging_run():
    frames = [{"file": "/home/u/train.py", "line": 41, "function": "load", "user": True}]
    record = ordinary_run().event("stall", 75, pid=TRAINER, since=159.0, limit=12.0, cpu=0.0, same_place=True)
    record.event("stacks", 76, pid=TRAINER, reason="stall", threads=[{"name": "MainThread", "frames": frames}])
    for second in range(60, 90):
        memory(record, second, 2 * GB)
    return record.exit(90, None, "SIGINT")


ALL = {"leaking": leaking_run, "healthy": healthy_run, "raising": raising_run, "hanging": hanging_run}
