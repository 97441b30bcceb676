"""Memory that the run keeps more of from step to step: whose it is, how fast, since when, what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from holter.diagnosis.core.epochs import EpochBegin, by_span, epochs_of, levels, rises_between
from holter.diagnosis.core.evidence import wall_clock
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import Progress, progress_of, windows_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.core.trend import Trend, stairs, trend_of
from holter.diagnosis.ending.exits import ended_at
from holter.diagnosis.forecast.extrapolate import FEWEST_STEPS, Extrapolation, extrapolate, extrapolate_by_epoch
from holter.diagnosis.leak.growers import Grower, growers, who_grew
from holter.diagnosis.leak.growth import by_step, growth_within_step
from holter.diagnosis.memory.exhaustion import Exhaustion, exhaustion_of
from holter.diagnosis.memory.loader_memory import shared_memory_growth
from holter.diagnosis.memory.memory import MemoryCurve, Points, allocated_curve, memory_curve
from holter.finding import Ending, Evidence, Forecast, Grade
from holter.units import count, size

# What grew by less than this is nobody's trouble, whatever its share of a small program.
_LEAK_MIN_BYTES = 64e6
_LEAK_LARGE_SHARE = 0.2  # of the limit
_AT_LIMIT = 0.95
_STEADY = 0.6  # the later half's slope against the earlier's
_SUSTAINED = 12  # readings over the growth


@dataclass(frozen=True)
class Leak:
    """Growth that stands: where it is, its measure, how sure it is, and a claim's words for it."""

    where: str
    pids: tuple[int, ...]
    curve: MemoryCurve
    per_step: float
    per_epoch: float | None
    since_step: int | None
    since_epoch: int | None
    rise: float
    grade: Grade
    words: str
    evidence: tuple[Evidence, ...]
    forecast: Forecast | None
    ended_run: bool
    progress: Progress
    at_epoch_ends: bool = False
    steps: float = 0.0  # over which it rose


@once
def leak_of(record: RecordLike, ending: Ending) -> Leak | None:
    """Give the growth of a run that ran out of memory by it, is about to, or clearly would have; else None."""
    ran_out = exhaustion_of(record, ending)
    if ran_out is not None:
        if ran_out.shape != "leak" or ran_out.curve is None:
            return None
        within = growth_within_step(record, ran_out.curve, ran_out.progress)
        found = _measured(record, ran_out.curve, ran_out.on_device, ended=True) if within is None else None
        if found is None:
            return _unmeasured(record, ran_out)
        words = f"{_grew(found)} {_until(ran_out)}"
        return replace(found, grade=ran_out.grade, words=words, evidence=ran_out.evidence, ended_run=True)
    if ending.kind in ("crashed", "hung"):
        return None
    end = ended_at(record)
    candidates = []
    for curve, on_device in ((memory_curve(record), False), (allocated_curve(record), True)):
        if curve is None:
            continue
        found = _measured(record, curve.until(end) if end else curve, on_device)
        found = _judged(record, found, running=ending.kind == "running") if found is not None else None
        if found is not None:
            candidates.append(found)
    return min(candidates, key=lambda leak: (leak.grade == "hypothesis", -leak.rise), default=None)


def _unmeasured(record: RecordLike, ran_out: Exhaustion) -> Leak | None:
    """Give growth that no steps tell of: within one of them, or by time alone."""
    curve = ran_out.curve
    if curve is None:
        return None
    rise, where = curve.peak - curve.points[0][1], "device" if ran_out.on_device else "tree"
    progress = progress_of(record)
    grounds = (ran_out.grade, ran_out.words, ran_out.evidence)
    return Leak(where, (), curve, 0.0, None, None, None, rise, *grounds, None, True, progress)


def _measured(record: RecordLike, curve: MemoryCurve, on_device: bool, *, ended: bool = False) -> Leak | None:
    """Measure the growth of a curve while the run trained, whatever it comes to.

    What ended a run is its top; of a run that goes on or came to its end, only what is still held has been kept.
    """
    progress = progress_of(record)
    trained = by_step(record, curve.points, progress)
    if len(trained) < 2 or not progress.step:
        return None
    settled = _settled(trained, progress.step) or trained
    trend = trend_of(settled)
    begins = epochs_of(record, progress.pid)
    climb = _by_epoch(trained, begins)
    top = max(value for _, value in settled)
    rise = max(0.0, (top if ended else min(top, curve.late)) - min(settled[0][1], trend.level or settled[0][1]))
    steps = max(1.0, settled[-1][0] - max(trend.since, settled[0][0]))
    # Without a bend it grew from the start: the first reading is no beginning of anything.
    bend = int(trend.since) if trend.grows and trend.since > settled[0][0] else None
    since = bend if bend is not None else int(trained[0][0])
    who = _who(record, curve, progress, rise)
    where = "device" if on_device else who.where if who is not None else "tree"
    return Leak(
        where=where,
        pids=who.pids if who is not None else (),
        curve=curve,
        per_step=rise / steps,
        steps=steps,
        per_epoch=climb[0] if climb is not None else None,
        at_epoch_ends=climb is not None and rises_between(trained, [float(begin.step) for begin in begins]),
        since_step=bend,
        since_epoch=_epoch_at(begins, since),
        rise=rise,
        grade="hypothesis",
        words="",
        evidence=(),
        forecast=None,
        ended_run=False,
        progress=progress,
    )


def _settled(points: Points, last_step: int) -> Points:
    """Leave out the first steps, which fill caches and allocate what is then reused."""
    begin = max(2.0, 0.05 * last_step)
    return tuple(point for point in points if point[0] >= begin)


def _by_epoch(points: Points, begins: tuple[EpochBegin, ...]) -> tuple[float, float] | None:
    known = levels(points, begins)
    return stairs([value for _, value in known]) if len(known) >= 3 else None


def _epoch_at(begins: tuple[EpochBegin, ...], step: float) -> int | None:
    return next((begin.epoch for begin in reversed(begins) if begin.step <= step), None)


def _who(record: RecordLike, curve: MemoryCurve, progress: Progress, rise: float) -> Grower | None:
    begin = progress.first_step_m or curve.points[0][0]
    if shared_memory_growth(record, curve.points[-1][0]) >= 0.5 * rise:
        return None  # batches that came from workers lie in shared memory, whoever keeps them
    return who_grew(growers(record, progress.pid, begin, curve.points[-1][0]), rise)


def _judged(record: RecordLike, found: Leak, *, running: bool) -> Leak | None:
    """Grade growth that has not ended the run: supported only where it is clear, goes on and comes to much."""
    progress, curve = found.progress, found.curve
    trained = _settled(by_step(record, curve.points, progress), progress.step or 0)
    trend, begins = trend_of(trained), epochs_of(record, progress.pid)
    known = levels(trained, begins)
    climbs = _by_epoch(trained, begins) is not None
    if not trend.grows and not (climbs and trend.shape in ("jump", "flat", "grows")):
        return None
    if found.rise < _LEAK_MIN_BYTES or not _goes_on(trained, trend, known):
        return None
    ahead = extrapolation_of(record, curve, progress)
    planned_end = progress.planned if running else None
    meets = ahead is not None and (planned_end is None or ahead.at <= planned_end)
    large = bool(curve.limit) and found.rise >= _LEAK_LARGE_SHARE * (curve.limit or 0.0)
    doubled = found.rise >= (trend.level or float("inf"))
    clear = (
        (trend.grows and trend.keeps >= _STEADY and trend.readings >= _SUSTAINED) or (climbs and len(known) >= 4)
    ) and (progress.step or 0) >= 2 * FEWEST_STEPS
    if not (large or doubled or meets):
        return None
    sure = clear and (large or doubled or (running and meets)) and _beyond_one_epoch(trained, begins, ahead, running)
    words = _grew(found)
    if curve.limit:
        words += f" and stands at {size(curve.late)} of {curve.limit_words} of {size(curve.limit)}"
    forecast = forecast_of(record, ahead, curve) if running and meets and ahead is not None else None
    evidence = (Evidence("memory", curve.standing), Evidence("growth", _spread(found, trend)))
    grade: Grade = "supported" if sure else "hypothesis"
    return replace(found, grade=grade, words=words, forecast=forecast, evidence=evidence)


def _goes_on(trained: Points, trend: Trend, known: list[tuple[EpochBegin, float]]) -> bool:
    """Tell whether the growth outlived the first epoch and still went on at the end: a cache that fills does not."""
    if trend.keeps < 0.35 and trend.grows:
        return False
    if len(known) < 2:
        return True
    later = [point for point in trained if point[0] >= known[1][0].step]
    if len(later) < 4:
        return True
    total = trained[-1][1] - trained[0][1]
    later_share = (later[-1][0] - later[0][0]) / max(1.0, trained[-1][0] - trained[0][0])
    few = max(1, len(later) // 10)
    risen = median(v for _, v in later[-few:]) - median(v for _, v in later[:few])
    return risen >= 0.4 * later_share * total


def _beyond_one_epoch(
    trained: Points, begins: tuple[EpochBegin, ...], ahead: Extrapolation | None, running: bool
) -> bool:
    """Within its first epoch growth may be a cache that fills; only where no epochs are known, steadiness has to do."""
    if len(begins) != 1 or not trained:
        return True
    return not running and ahead is not None


def extrapolation_of(record: RecordLike, curve: MemoryCurve, progress: Progress) -> Extrapolation | None:
    """Say where a curve meets its limit, by steps and else by epochs."""
    if not curve.limit:
        return None
    trained = _settled(by_step(record, curve.points, progress), progress.step or 0)
    if not trained:
        return None
    begins = epochs_of(record, progress.pid)
    if len(begins) >= 2:
        later = tuple(point for point in trained if point[0] >= begins[1].step)
        known = [(float(begin.step), value) for begin, value in levels(trained, begins)]
        bounds = [float(begin.step) for begin in begins]
        spans = list(by_span(trained, bounds).values())[-3:]
        by_epoch = extrapolate_by_epoch(
            known, curve.limit, median([max(some) - median(some) for some in spans] or [0.0])
        )
        between = rises_between(trained, bounds)
        return by_epoch if between else extrapolate(later, curve.limit) or by_epoch
    return extrapolate(trained, curve.limit)


def forecast_of(record: RecordLike, ahead: Extrapolation, curve: MemoryCurve) -> Forecast | None:
    """Turn the step at which a limit is met into a time, by the pace of the last steps."""
    progress = progress_of(record)
    windows = windows_of(record)
    if not windows or not progress.step or progress.last_step_m is None:
        return None
    late = windows[-30:]
    span = late[-1].m - late[0].m + (late[0].sum or 0.0)
    done = sum(line.n or 0.0 for line in late)
    now = wall_clock(record, progress.last_step_m)
    if span <= 0 or done <= 0 or now is None:
        return None
    when, earliest, latest = (
        now + max(0.0, step - progress.step) * span / done for step in (ahead.at, ahead.earliest, ahead.latest)
    )
    what = f"{curve.limit_words} of {size(curve.limit or 0.0)} is reached at about step {count(round(ahead.at))}"
    return Forecast(what, when, earliest, latest)


def _grew(leak: Leak) -> str:
    whose = {"workers": "the data workers' memory", "device": "the device's memory"}.get(leak.where, "memory")
    per = f"{size(leak.per_step)} per step"
    if leak.at_epoch_ends and leak.per_epoch is not None:
        per = f"{size(leak.per_epoch)} per epoch"
    since = f" since epoch {count(leak.since_epoch)}" if leak.at_epoch_ends and leak.since_epoch else ""
    if not leak.at_epoch_ends and leak.since_step is not None and leak.since_step > 3:
        since = f" since step {count(leak.since_step)}"
    return f"{whose} grew {per}{since}"


def _until(ran_out: Exhaustion) -> str:
    curve = ran_out.curve
    if curve is None or not curve.limit:
        return f"up to {size(curve.peak)}" if curve is not None else f"until {ran_out.reached}"
    near = curve.peak >= _AT_LIMIT * curve.limit
    return f"and reached {curve.limit_words} of {size(curve.limit)}" if near else f"until {ran_out.reached}"


def _spread(leak: Leak, trend: Trend) -> str:
    """Say the growth so that it divides to the rate of the claim; the bounds of the slope where they hold that rate."""
    text = f"{size(leak.rise)} in {count(round(leak.steps))} steps"
    if trend.low <= leak.per_step <= trend.high:
        text += f", {size(max(0.0, trend.low))} to {size(trend.high)} per step"
    return text
