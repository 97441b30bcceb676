"""Forecasts while a run is on: told in time and near the truth, and silence on what only looks like growth."""

from __future__ import annotations

import math
import random
import time

import pytest
from build import GB, MB, MONO, TRAINER, WALL

from holter.diagnosis.forecast.engine import ForecastEngine


class Training:
    """A run on a clock of its own: as the recorder reads it, from its imports to its end or the limit."""

    def __init__(self, used, *, limit=1 * GB, step_s=0.02, imports=5.0, per_epoch=0, epochs=0, plan=True, noise=0.0):
        self.used, self.limit, self.step_s, self.imports, self.noise = used, limit, step_s, imports, noise
        self.per_epoch, self.epochs, self.plan = per_epoch, epochs, plan
        self.rng = random.Random(7)
        self.forecasts, self.ended_at = [], None

    def run(self, seconds=120.0, extra=lambda _at, _step: {}, tick=None):
        """Follow it for some seconds of training, ten readings a second once the limit is half a minute away."""
        forecaster, at, last_step, epochs_begun = ForecastEngine(), 0.0, 0, 0
        lines, events = [], [{"k": "adapter", "pid": TRAINER, "state": "on", "framework": "torch"}]
        recent = []
        while at < self.imports + seconds:
            step = max(0, int((at - self.imports) / (self.step_s(at) if callable(self.step_s) else self.step_s)))
            if self.epochs and self.per_epoch:
                if step and self.plan and not epochs_begun:
                    plan = {"steps": self.per_epoch * self.epochs, "steps_per_epoch": self.per_epoch}
                    events.append({"k": "plan", "pid": TRAINER, "epochs": self.epochs, **plan})
                while step and epochs_begun <= min(step // self.per_epoch, self.epochs - 1):
                    events.append(
                        {"k": "epoch", "pid": TRAINER, "epoch": epochs_begun + 1, "step": epochs_begun * self.per_epoch}
                    )
                    epochs_begun += 1
                if step >= self.per_epoch * self.epochs:
                    break
            used = self.used(step) + self.rng.gauss(0, self.noise) if step else min(1.0, at / 5) * self.used(0)
            if step and self.used(step) >= self.limit:
                self.ended_at = step
                break
            if step > last_step:
                window = {"n": step - last_step, "first": last_step + 1, "last": step, "min": 0.9 * self.step_s}
                lines.append({"k": "steps", "m": MONO + at, "pid": TRAINER, "sum": 0.1, **window})
            sample = {"k": "sample", "m": MONO + at, "t": WALL + at, **extra(at, step)}
            sample["cgroup"] = {"usage": used + 50 * MB, "file": 50 * MB, "limit": self.limit, "shmem": 0}
            sample["memory"] = {"total": 24 * GB, "available": 20 * GB, "swap_total": 0, "swap_free": 0}
            sample["processes"] = {"rss": used, "list": [{"pid": TRAINER, "rss": used, "fds": 20}]}
            sample["guests"] = [{"pid": TRAINER, "step": step}]
            self.forecasts += forecaster.observe(sample, lines, events)
            lines, events, last_step = [], [], step
            recent = [*recent[-50:], (at, used)]
            far = next((r for r in recent if at - r[0] <= 5), recent[0])
            rate = (used - far[1]) / (at - far[0]) if at - far[0] >= 0.9 else 0.0
            at += tick or (0.1 if rate > 0 and (self.limit - used) / rate < 30 else 1.0)
        return self

    @property
    def texts(self):
        return [one["text"] for one in self.forecasts]

    def first(self):
        """The first forecast, how far the run had come by then, and how far off it was."""
        one = next(one for one in self.forecasts if one["state"] == "foreseen")
        return one["at_step"] / self.ended_at, one["step"] / self.ended_at - 1


@pytest.mark.parametrize("seconds", [15, 20, 30, 60, 600])
@pytest.mark.parametrize("noise", [0.0, 5 * MB, 12 * MB])
@pytest.mark.parametrize("step_s", [0.002, 0.05, 0.5])
def test_a_leak_is_told_before_half_of_its_steps(seconds, noise, step_s):
    """However short or long the training, its end is told before its half, within a fifth of the truth."""
    steps = seconds / step_s
    if steps < 25:
        pytest.skip("a handful of steps")
    run = Training(lambda s: 0.35 * GB + 0.65 * GB * s / steps, step_s=step_s, noise=noise).run(2 * seconds)

    forecast_at, off = run.first()

    assert forecast_at < 0.5
    assert abs(off) < 0.2
    assert len(run.texts) <= 2


@pytest.mark.parametrize("late", [0.1, 0.25])
def test_a_leak_that_begins_later_is_dated(late):
    """Flat at first: the step at which growth began is told with it."""
    run = Training(lambda step: 0.4 * GB + 0.6 * GB * max(0.0, step / 1000 - late) / (1 - late), step_s=0.03).run()

    forecast_at, off = run.first()

    assert forecast_at < 0.62
    assert abs(off) < 0.2
    assert run.forecasts[0]["since_step"] == pytest.approx(1000 * late, abs=60)


def test_the_sentence():
    """Rate, since when, the wall, the step with its bounds, the time to it."""
    run = Training(lambda step: 0.4 * GB + 2 * MB * step, step_s=0.1).run()

    assert len(run.texts) == 1
    assert run.texts[0].startswith("memory grows 2.0 MB per step since step ")
    assert "; the container's limit of 1.0 GB is reached at about step " in run.texts[0]
    assert run.forecasts[0]["earliest"] <= run.forecasts[0]["when"] <= run.forecasts[0]["latest"]
    assert run.forecasts[0]["when"] == pytest.approx(WALL + 5 + 30, abs=4)


@pytest.mark.parametrize("per_epoch", [20, 60, 150])
def test_a_leak_over_epochs_is_told(per_epoch):
    """With epochs known it is told as well, once the growth has gone on beyond the first."""
    steps = 600
    run = Training(lambda s: 0.4 * GB + 0.6 * GB * s / steps, step_s=0.04, per_epoch=per_epoch, epochs=100).run()

    forecast_at, off = run.first()

    assert forecast_at < 0.5
    assert abs(off) < 0.2


@pytest.mark.parametrize("ends_in", [6, 9, 20])
def test_growth_from_epoch_to_epoch_is_told(ends_in):
    """Something is kept at the end of each epoch, and the last one does not fit."""

    def used(step):
        return 0.35 * GB + 0.65 * GB * (step // 50) / (ends_in - 0.5)

    run = Training(used, step_s=0.05, per_epoch=50, epochs=100, noise=2 * MB).run()

    forecast_at, off = run.first()

    assert forecast_at <= 0.5
    assert abs(off) < 0.2


def test_growth_in_the_first_epoch_that_ends_the_run_within_it_is_told():
    """The limit lies before the planned end of the only epoch."""
    run = Training(lambda s: 0.4 * GB + 0.6 * GB * s / 500, step_s=0.04, per_epoch=2000, epochs=3).run()

    forecast_at, off = run.first()

    assert forecast_at < 0.5
    assert abs(off) < 0.2


LOOK_ALIKES = {
    "flat": lambda _s: 0.5 * GB,
    "flat near the limit": lambda _s: 0.96 * GB,
    "warm-up": lambda s: 0.3 * GB + 0.5 * GB * (1 - math.exp(-s / 100)),
    "slow warm-up to nine tenths": lambda s: 0.3 * GB + 0.6 * GB * (1 - math.exp(-s / 300)),
    "quick warm-up": lambda s: 0.3 * GB + 0.5 * GB * (1 - math.exp(-s / 10)),
    "teeth": lambda s: 0.4 * GB + 0.14 * GB * (s % 150) / 150,
    "small teeth": lambda s: 0.4 * GB + 0.1 * GB * (s % 40) / 40,
    "one jump": lambda s: 0.4 * GB if s < 150 else 0.8 * GB,
    "two jumps": lambda s: 0.4 * GB + 0.2 * GB * (s > 100) + 0.2 * GB * (s > 130),
    "a log": lambda s: 0.4 * GB + 2e3 * s,
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("noise", [0.0, 4 * MB])
@pytest.mark.parametrize("step_s", [0.02, 0.1])
def test_what_only_looks_like_a_leak_is_not_told(name, noise, step_s):
    """No word on warm-up, teeth, jumps and plateaus, with no epochs known."""
    run = Training(LOOK_ALIKES[name], step_s=step_s, noise=noise).run(200 if step_s > 0.05 else 60)

    assert run.texts == []


@pytest.mark.parametrize("per_epoch", [100, 400, 1500])
@pytest.mark.parametrize("top", [0.6, 0.9])
@pytest.mark.parametrize("planned", [True, False])
def test_a_cache_that_fills_in_the_first_epoch_is_not_told(per_epoch, top, planned):
    """It grows in a straight line for the whole of the first epoch, and stays."""

    def used(step):
        return 0.3 * GB + (top - 0.3) * GB * min(1.0, step / per_epoch)

    run = Training(used, step_s=0.02, per_epoch=per_epoch, epochs=4, plan=planned, noise=1 * MB).run(300)

    assert run.texts == []


def test_a_run_that_ends_before_the_limit_is_not_told():
    """It grows, but the planned end comes first."""
    run = Training(lambda s: 0.4 * GB + 0.3 * GB * s / 1000, step_s=0.02, per_epoch=100, epochs=10).run()

    assert run.texts == []


def test_growth_that_stops_is_taken_back():
    """What was forecast and does not come is said to be off the table, once."""
    run = Training(lambda s: 0.3 * GB + 0.5 * GB * min(1.0, s / 1000), step_s=0.02).run(90)

    assert [one["state"] for one in run.forecasts] == ["foreseen", "over"]
    assert "levelled off at 80" in run.texts[1]


def in_one_epoch(scope, lines, kind="list"):
    """Follow the first epoch of a leak that is found in a variable; its end comes in the second."""
    forecaster, forecasts = ForecastEngine(lambda _path: lines), []
    begin = [{"k": "epoch", "pid": TRAINER, "epoch": 1, "step": 0}]
    begin.append({"k": "plan", "pid": TRAINER, "steps": 5000, "epochs": 10, "steps_per_epoch": 500})
    for tenth in range(100):
        step = tenth * 5
        sample = {"k": "sample", "m": MONO + tenth / 10, "t": WALL + tenth / 10}
        sample["cgroup"] = {"usage": 0.3 * GB + 1 * MB * step, "file": 0, "limit": 1 * GB}
        sample["guests"] = [{"pid": TRAINER, "step": step}]
        event = census(step, 1 * MB * step)
        event["list"][0] |= {"scope": scope, "name": "kept", "owner": "", "type": kind}
        forecasts += forecaster.observe(sample, [], begin if not tenth else [event] if tenth % 10 == 5 else [])
    return forecasts


def test_what_outlives_an_epoch_is_told_in_the_first():
    """A list at the top of the script goes on growing when the epoch is over."""
    lines = ["kept = []", "for epoch in range(10):", "    for x in loader:", "        kept.append(x)"]

    assert len(in_one_epoch("global", lines)) == 1


@pytest.mark.parametrize(
    ("scope", "lines"),
    [
        ("global", ["for epoch in range(10):", "    kept = []", "    for x in loader:", "        kept.append(x)"]),
        ("attribute", ["def on_epoch_end(self):", "    self.kept = []"]),
        ("local", ["def epoch(loader):", "    kept = []", "    for x in loader:", "        kept.append(x)"]),
    ],
)
def test_what_goes_with_its_epoch_is_not_told(scope, lines):
    """The outputs of an epoch are let go at its end."""
    assert in_one_epoch(scope, lines) == []


def test_a_cache_may_be_full_when_each_sample_has_come_by():
    """A dictionary at the top of the script is as likely one as not: the end of the epoch is waited for."""
    lines = ["kept = {}", "def load(i):", "    kept[i] = read(i)"]

    assert in_one_epoch("global", lines, "dict") == []


def census(step, grown, bound=None, variable="kept"):
    """What a census says of the one variable that explains all of the growth."""
    row = {"variable": variable, "file": "/home/u/train.py", "type": "deque", "length": step, "bytes": grown}
    row |= {"length_before": 0, "bytes_before": 0, "bound": bound}
    return {"k": "held", "pid": TRAINER, "step": step, "rss": GB + grown, "rss_before": GB, "list": [row]}


def with_census(bound, seconds=30.0, source=None):
    """Follow a leak of 1 MB a step at fifty steps a second, with a census each second."""
    forecaster, forecasts = ForecastEngine(source), []
    for tenth in range(int(10 * seconds)):
        step = tenth * 5
        held = min(step, bound or step)
        sample = {"k": "sample", "m": MONO + tenth / 10, "t": WALL + tenth / 10}
        sample["cgroup"] = {"usage": 0.3 * GB + 1 * MB * held, "file": 0, "limit": 1 * GB}
        sample["guests"] = [{"pid": TRAINER, "step": step}]
        events = [census(held, 1 * MB * held, bound)] if tenth % 10 == 5 else []
        forecasts += forecaster.observe(sample, [], events)
        if sample["cgroup"]["usage"] >= GB:
            break
    return forecasts


def test_what_has_a_bound_below_the_limit_is_not_told():
    """A replay buffer of four hundred entries fills more than half of the room, and its bound is known."""
    assert with_census(400) == []
    assert len(with_census(None)) == 1
    assert len(with_census(5000)) == 1


def test_what_the_script_takes_out_again_is_waited_for():
    """A list that the script cuts back is given more time to do so."""
    cut = with_census(None, source=lambda _path: ["kept.append(x)", "if len(kept) > 400:", "    kept.pop(0)"])
    kept = with_census(None, source=lambda _path: ["kept.append(x)"])

    assert kept[0]["at_step"] < 300 < cut[0]["at_step"]


def test_the_next_process_that_trains_is_followed():
    """Each fold has a process of its own: the second one's growth is measured by its own steps."""
    forecaster, forecasts = ForecastEngine(), []
    for second in range(120):
        pid, step = (TRAINER, second * 10) if second < 60 else (TRAINER + 1, (second - 60) * 10)
        used = 0.4 * GB + (0 if second < 60 else 1 * MB * step)
        sample = {"k": "sample", "m": MONO + second, "t": WALL + second, "guests": [{"pid": pid, "step": step}]}
        sample["cgroup"] = {"usage": used, "file": 0, "limit": 1 * GB}
        forecasts += forecaster.observe(sample, [], [])

    assert forecasts[0]["step"] == pytest.approx(600, rel=0.1)
    assert forecasts[0]["at_step"] < 300


def test_growth_of_other_programs_is_not_the_runs():
    """The machine's memory shrinks and the run's own does not grow."""

    def extra(_at, step):
        return {"memory": {"total": 16 * GB, "available": 12 * GB - 8 * MB * step, "swap_total": 0, "swap_free": 0}}

    forecaster, forecasts = ForecastEngine(), []
    for second in range(120):
        sample = {"k": "sample", "m": MONO + second, "t": WALL + second, **extra(second, second * 10)}
        sample |= {"guests": [{"pid": TRAINER, "step": second * 10}], "processes": {"rss": GB, "list": []}}
        forecasts += forecaster.observe(sample, [], [])

    assert forecasts == []


def followed(seconds, reading, *, planned=0, every=1):
    """Follow ten steps a second with memory flat and one other reading by second."""
    forecaster, forecasts = ForecastEngine(), []
    for second in range(0, seconds, every):
        events = [{"k": "plan", "pid": TRAINER, "steps": planned}] if second == 2 and planned else []
        sample = {"k": "sample", "m": MONO + second, "t": WALL + second, **reading(second)}
        sample["guests"] = [{"pid": TRAINER, "step": second * 10}]
        forecasts += forecaster.observe(sample, [], events)
    return [one["text"] for one in forecasts], forecasts


def disk(free):
    return {"disk": {"list": [{"path": "/data/x", "mount": "/data", "total": 10 * GB, "free": free}]}}


def test_a_disk_that_fills_is_told():
    """Checkpoints that nobody removes fill the disk at a step that can be told."""
    texts, forecasts = followed(60, lambda s: disk(8 * GB - (s // 5) * 0.6 * GB), every=5)

    assert len(texts) == 1
    assert "/data" in texts[0]
    assert forecasts[0]["step"] == pytest.approx(650, rel=0.2)


def test_a_disk_where_old_checkpoints_go_is_not_told():
    """Three are kept and the oldest goes; logs grow by next to nothing."""
    rotated, _ = followed(300, lambda s: disk(8 * GB - min(3, s // 20) * 0.6 * GB - (s % 20 > 17) * 0.6 * GB - 1e4 * s))
    logs, _ = followed(300, lambda s: disk(8 * GB - 1e5 * s))

    assert (rotated, logs) == ([], [])


def test_open_files_that_are_never_closed_are_told():
    """Two descriptors a step against a limit of 1,024."""

    def reading(second):
        rows = [{"pid": TRAINER, "rss": GB, "fds": 20 + 20 * (second // 5 * 5)}]
        return {"processes": {"rss": GB, "list": rows}, "rlimits": {"nofile": 1024} if second == 0 else {}}

    texts, forecasts = followed(50, reading)

    assert len(texts) == 1
    assert "the limit of 1,024 open files" in texts[0]
    assert forecasts[0]["step"] == pytest.approx(502, rel=0.2)


def test_shared_memory_that_fills_is_told():
    """/dev/shm of 64 MB that loses 0.1 MB a step."""
    texts, forecasts = followed(60, lambda s: {"shm": {"total": 64 * MB, "free": 64 * MB - 1 * MB * s}}, every=2)

    assert forecasts[0]["step"] == pytest.approx(640, rel=0.2)
    assert "/dev/shm of 64.0 MB" in texts[0]


def test_a_device_is_told_by_what_is_allocated():
    """The framework's allocated memory grows to the device's size; what it only reserves is no alarm."""
    for name, heard in (("allocated", 1), ("reserved", 0)):
        forecaster, forecasts = ForecastEngine(), []
        for second in range(40):
            line = {"k": "device", "pid": TRAINER, "device": 0, "allocated": 2 * GB, "reserved": 2 * GB}
            line[name] = (2 + 0.1 * second) * GB
            sample = {"k": "sample", "m": MONO + second, "t": WALL + second}
            sample["guests"] = [{"pid": TRAINER, "step": second * 10}]
            sample["nvidia"] = {"list": [{"index": 0, "total": 8 * GB, "used": 7 * GB, "tree": 7 * GB}]}
            forecasts += forecaster.observe(sample, [line], [])

        assert len(forecasts) == heard


def test_swap_counts_as_room_and_as_use():
    """Resident memory stands at the limit while swap grows: the end is that of both together."""

    def reading(second):
        used = 0.4 * GB + 0.03 * GB * second
        group = {"usage": min(used, GB), "file": 0, "limit": GB, "swap_limit": GB, "swap_usage": max(0.0, used - GB)}
        return {"cgroup": group, "memory": {"total": 24 * GB, "available": 20 * GB, "swap_total": 4 * GB}}

    texts, forecasts = followed(53, reading)

    assert "limit of 1.0 GB and its 1.0 GB of swap" in texts[0]
    assert forecasts[0]["step"] == pytest.approx(533, rel=0.1)


def slowed(step_time, seconds=120, cpu_of=lambda took: took, length_of=lambda _second: 16):
    """Follow windows of steps whose quickest took what a function of the second says, their CPU and their batches."""
    used = 0.0
    forecaster, forecasts, step = ForecastEngine(), [], 0
    for second in range(seconds):
        took = step_time(second)
        n = max(1, int(1 / took))
        step += n
        line = {"k": "steps", "pid": TRAINER, "n": n, "first": step - n + 1, "last": step, "min": took, "sum": 1.0}
        sample = {"k": "sample", "m": MONO + second, "t": WALL + second, "guests": [{"pid": TRAINER, "step": step}]}
        used += n * cpu_of(took)
        sample["processes"] = {"rss": GB, "cpu_s": used, "list": []}
        shapes = [[[8, length_of(second)], "torch.int64"]]
        batch = {"k": "batch", "m": MONO + second, "pid": TRAINER, "step": step - n + 1, "shapes": shapes}
        forecasts += forecaster.observe(sample, [line], [batch])
    return [one["text"] for one in forecasts]


def test_steps_that_get_slower_since_their_batches_get_larger_are_no_news():
    """A curriculum of longer and longer sequences does what it is meant to."""
    assert slowed(lambda second: 0.02 + 0.001 * second, length_of=lambda second: 16 + second) == []


def test_a_machine_that_gets_busier_is_not_the_runs_doing():
    """The steps take longer and longer and use as much CPU as ever: others take it."""
    assert slowed(lambda second: 0.02 + 0.001 * second, cpu_of=lambda _took: 0.02) == []


def test_steps_that_get_slower_and_slower_are_told():
    """From 20 ms a step to far more, a little with each."""
    texts = slowed(lambda second: 0.02 + 0.001 * second)

    assert texts
    assert texts[0].startswith("steps get slower and slower: ")
    assert len(texts) <= 2


@pytest.mark.parametrize(
    "step_time",
    [
        lambda _s: 0.02,
        lambda s: 0.02 if s < 50 else 0.05,
        lambda s: 0.02 + 0.01 * math.sin(s / 9),
        lambda s: 0.05 - 0.0002 * s,
        lambda s: 0.02 * random.Random(s).uniform(0.9, 2.5),
        lambda s: 0.02 + 0.03 * (40 < s < 70),
        lambda s: 0.02 + 0.02 * (1 - math.exp(-s / 10)),
    ],
)
def test_other_paces_are_not_slowing(step_time):
    """A steady pace, one change, waves, noise, a busy while and a warm-up are no slowing down."""
    assert slowed(step_time) == []


def test_a_look_costs_next_to_nothing():
    """A run of hours keeps a few hundred points, and a look takes a thousandth of the second between two."""
    forecaster = ForecastEngine()
    begun = time.thread_time()
    for second in range(3000):
        sample = {"k": "sample", "m": MONO + second, "t": WALL + second}
        sample["cgroup"] = {"usage": 2 * GB + 1e5 * second, "file": 0, "limit": 8 * GB}
        sample["memory"] = {"total": 24 * GB, "available": 20 * GB}
        sample |= disk(8 * GB - 1e4 * second)
        sample["guests"] = [{"pid": TRAINER, "step": second * 10}]
        line = {"k": "steps", "pid": TRAINER, "n": 10, "first": 1, "last": second * 10, "min": 0.1}
        forecaster.observe(sample, [line], [])

    assert (time.thread_time() - begun) / 3000 < 0.003
    assert all(len(track.points) <= 240 for track in forecaster._series.values())


def test_damaged_lines_are_survived():
    """Nonsense in every place raises nothing."""
    forecaster = ForecastEngine()
    for bad in (None, "x", -1, float("nan"), [], {}, [1, "a"]):
        sample = dict.fromkeys(("cgroup", "memory", "processes", "disk", "shm", "rlimits", "nvidia", "guests"), bad)
        forecaster.observe({"k": "sample", "m": bad, "t": bad, **sample}, [{"k": "steps", "pid": bad, "last": bad}], [])
        forecaster.observe({"m": 1.0, "cgroup": {"limit": bad, "usage": bad}}, [], [{"k": "epoch", "pid": bad}])
