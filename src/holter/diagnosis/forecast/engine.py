"""What is still to come, said while the run is on: which wall it will meet, at which step and when.

Followed sample by sample with bounded memory, no clock and no file: the time comes with the lines. It speaks once of
each wall, again when the estimate has moved a lot, and once more when the wall will not be reached.
"""

from __future__ import annotations

from typing import Any

from holter.diagnosis.core.epochs import rises_between
from holter.diagnosis.core.input_growth import InputGrowth
from holter.diagnosis.forecast.extrapolate import USED, Extrapolation, extrapolate, extrapolate_by_epoch
from holter.diagnosis.forecast.gauges import Gauges
from holter.diagnosis.forecast.pace import Pace
from holter.diagnosis.forecast.series import ForecastMade, GaugeSeries, moved_far, out_of_sight, words_of
from holter.diagnosis.forecast.slowing import StepTimes
from holter.diagnosis.leak.retained_live import Holding, Source
from holter.record.events.agent import Batch, NoSpace
from holter.record.events.kinds import typed
from holter.record.events.timeline import Processes, Sample, StepWindow
from holter.units import count, duration, size

_LOOKS_EVERY_S = 0.45  # seconds between two looks at the same series, and the part of the run's age
_LOOKS_EVERY_SHARE_OF_AGE = 0.02
_AT_LEAST = 4.0  # seconds of growth: teeth of a garbage collector rise as steadily for as long
_AT_LEAST_KNOWN = 1.5  # where what grows is known and has no bound
_ALMOST_FULL_SHARE = 0.9  # of the room used: then it is said whatever it may be
_USED_UNKNOWN = 0.32  # of the room, where nothing says what grows: what fills and stays often takes less
_USED_TAMED = 0.6  # where the script takes out again what it puts in
_RISES = 5  # on a disk: of five files in a row that come, none went
_LONG_GROWTH_S = 600.0  # seconds of growth after which less of the room needs to be used
_BLIND = 30.0  # seconds of growth, where no steps are known, and the part of the room that it has to have used
_BLIND_USED = 0.4


class ForecastEngine:
    """Asked at each tick of the recorder; gives what there is to say, as fields of a `forecast` event."""

    def __init__(self, source: Source | None = None) -> None:
        self._pace = Pace()
        self._holding = Holding(source)
        self._gauges = Gauges()
        self._series: dict[tuple[str, str], GaugeSeries] = {}
        self._times = StepTimes()
        self._inputs = InputGrowth()
        self._slow_reported = 0.0
        self._slow_looked = 0.0

    def observe(
        self, sample: dict[str, Any], lines: list[dict[str, Any]], events: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Take in a sample, the timeline lines and the events that came with it; give what is to be said now."""
        pace = self._pace
        windows, facts = typed(lines), typed(events)
        pace.follow(Sample.parse(sample), windows, facts)
        self._holding.follow(facts)
        for fact in facts:
            if isinstance(fact, Batch) and fact.pid == pace.pid:
                self._inputs.add(fact)
        for line in windows:
            if isinstance(line, StepWindow) and line.pid == pace.pid:
                self._times.add(line)
        self._times.spent(pace.step, Processes.of(sample).cpu_s)
        reports = []
        for gauge in self._gauges.read(sample, windows):
            series = self._series.get((gauge.what, gauge.name))
            if series is None or series.limit_moved(gauge.limit):
                series = self._series[gauge.what, gauge.name] = GaugeSeries(gauge)
            series.add(gauge, pace)
            if pace.now - series.looked >= max(_LOOKS_EVERY_S, _LOOKS_EVERY_SHARE_OF_AGE * pace.age):
                series.looked = pace.now
                report = self._look(series)
                if report is not None:
                    reports.append(report)
        slower = self._slower()
        saves = [next_checkpoint(fact, pace) for fact in facts if isinstance(fact, NoSpace)]
        full = [report for report in saves if report is not None]
        return [*reports, *full, slower] if slower is not None else [*reports, *full]

    def _look(self, series: GaugeSeries) -> dict[str, Any] | None:
        ahead, pace = self._ahead(series), self._pace
        if series.forecast is None:
            if ahead is None or not self._in_reach(ahead, series) or not self._nearest(ahead, series):
                series.agreed = 0
                return None
            # Two looks that agree: one reading at an odd moment is no news.
            series.agreed += 1
            if series.agreed < 2:
                return None
            return self._report(series, ahead)
        if ahead is not None and self._in_reach(ahead, series):
            return self._report(series, ahead) if moved_far(series.forecast, ahead, pace) else None
        if out_of_sight(series.forecast, series, pace):
            gauge = series.gauge
            text = f"{gauge.subject} has levelled off at {gauge.unit(gauge.used)}; {gauge.wall} will not be reached"
            series.forecast, series.agreed = None, 0
            return {"what": gauge.what, "state": "over", "at_step": pace.step, "text": text}
        return None

    def _ahead(self, series: GaugeSeries) -> Extrapolation | None:
        pace, limit = self._pace, series.gauge.limit
        if not series.by_step:
            return self._blind(series)
        points = series.points
        if len(points) < 4 or points[-1][0] - points[0][0] < 3:
            return None
        begins, long = pace.epoch_begins, pace.age > _LONG_GROWTH_S
        if series.gauge.what == "memory" and self._holding.lasting:
            found = extrapolate(points, limit, long=long)
            if found is not None:
                return found
        if len(begins) < 2:
            found = extrapolate(points, limit, used=self._enough(series), long=long)
            if found is None or not begins:
                return found
            # A cache that fills in the first epoch is full at its end.
            within = found.at <= begins[0][0] + pace.epoch_length
            return (
                found if within or found.rise > _ALMOST_FULL_SHARE * (limit - series.gauge.used + found.rise) else None
            )
        by_epoch = extrapolate_by_epoch(series.levels(begins), limit, series.over_level(begins))
        if rises_between(points, [step for step, _ in begins]):
            return by_epoch
        later = [point for point in points if point[0] >= begins[1][0]]
        return extrapolate(later, limit, long=long) or _same_beyond(points, later, limit) or by_epoch

    def _enough(self, series: GaugeSeries) -> float:
        """Give the part of the room that growth has to use before it is spoken of, by what is known of its cause."""
        if series.gauge.what != "memory" or self._holding.endless:
            return USED
        return _USED_TAMED if self._holding.tamed else _USED_UNKNOWN

    def _blind(self, series: GaugeSeries) -> Extrapolation | None:
        """Without steps, data that is being loaded looks like a leak: only much growth over a long time counts."""
        points = series.points
        if self._pace.adapters or len(points) < 10 or points[-1][0] - points[0][0] < _BLIND:
            return None
        found = extrapolate(points, series.gauge.limit)
        free = series.gauge.limit - series.gauge.used
        return found if found is not None and found.rise >= _BLIND_USED * (free + found.rise) else None

    def _in_reach(self, ahead: Extrapolation, series: GaugeSeries) -> bool:
        """Tell whether the wall comes before the run's planned end, and is the run's own doing."""
        pace = self._pace
        if series.by_step and pace.planned is not None and ahead.at > pace.planned:
            return False
        known = series.gauge.what == "memory" and self._holding.endless
        grew_for = (pace.step - ahead.since) * (pace.per_step or 0.0)
        if series.by_step and grew_for < (_AT_LEAST_KNOWN if known else _AT_LEAST):
            return False
        if series.gauge.what == "memory" and not known and self._inputs.since(ahead.since):
            return False  # it takes more since more goes in
        if series.gauge.what == "disk" and series.rises(ahead.rise) < _RISES:
            return False
        to_come = self._holding.to_come if series.gauge.what == "memory" else None
        if to_come is not None and series.gauge.used + 1.2 * to_come < series.gauge.limit:
            return False  # what grows is full before the limit is met
        return series.is_own(ahead)

    def _nearest(self, ahead: Extrapolation, series: GaugeSeries) -> bool:
        """Of the walls of one kind only the first to be met is told."""
        others = [
            other for (what, _), other in self._series.items() if what == series.gauge.what and other is not series
        ]
        reported = [
            other.forecast for other in others if other.forecast is not None and other.by_step == series.by_step
        ]
        return all(forecast.ahead.at > ahead.at for forecast in reported)

    def _report(self, series: GaugeSeries, ahead: Extrapolation) -> dict[str, Any]:
        pace = self._pace
        seconds = (pace.per_step or 0.0) if series.by_step else 1.0
        now = float(pace.step) if series.by_step else pace.now
        ahead_s = [max(0.0, x - now) * seconds for x in (ahead.at, ahead.earliest, ahead.latest)]
        series.forecast = ForecastMade(ahead, now, pace.now, series.gauge.used)
        report: dict[str, Any] = {"what": series.gauge.what, "name": series.gauge.name, "state": "foreseen"}
        report |= {"at_step": pace.step, "limit": series.gauge.limit, "used": series.gauge.used}
        report |= dict(zip(("when", "earliest", "latest"), (pace.wall_clock + s for s in ahead_s), strict=True))
        if series.by_step:
            report |= {
                "step": round(ahead.at),
                "step_earliest": round(ahead.earliest),
                "step_latest": round(ahead.latest),
            }
            report |= {"per_step": ahead.slope, "since_step": round(ahead.since)}
        else:
            report |= {"per_second": ahead.slope}
        if ahead.by_epoch:
            report["per_epoch"] = ahead.by_epoch
        report["text"] = words_of(series.gauge, ahead, series.by_step, ahead_s[0], pace)
        return report

    def _slower(self) -> dict[str, Any] | None:
        pace = self._pace
        if pace.now - self._slow_looked < 2.0:
            return None
        self._slow_looked = pace.now
        found = self._times.slowing()
        if found is None or found.factor < 2 * self._slow_reported or self._inputs.since(found.since):
            return None
        self._slow_reported = found.factor
        text = (
            f"steps get slower and slower: {duration(found.before)} at step {count(found.since)}, "
            f"{duration(found.now)} now, {found.factor:.1f} times as long"
        )
        report: dict[str, Any] = {"what": "step-time", "state": "slower", "at_step": pace.step}
        return report | {"since_step": found.since, "before": found.before, "now": found.now, "text": text}


def _same_beyond(
    points: list[tuple[float, float]], later: list[tuple[float, float]], limit: float
) -> Extrapolation | None:
    """Growth of the first epoch that goes on in the second as it was needs less of it to be seen."""
    found = extrapolate(points, limit)
    if found is None or len(later) < 4:
        return None
    span = later[-1][0] - later[0][0]
    few = max(1, len(later) // 5)
    before, after = (sorted(value for _, value in some)[few // 2] for some in (later[:few], later[-few:]))
    risen = after - before
    expected = found.slope * span * (1 - 1 / max(2, len(later) // few))
    free_before = limit - (points[-1][1] - found.rise)
    return found if risen >= 0.7 * expected and risen >= 0.04 * free_before else None


def next_checkpoint(event: NoSpace, pace: Pace) -> dict[str, Any] | None:
    """Give the forecast for a disk that has no room for one more; None where there may be no next one."""
    took, free, folder = event.bytes, event.free, event.path
    if not took or free is None or not folder:
        return None
    step, every, saves = event.step or 0, event.every or 0, event.saves or 0
    planned = pace.planned or None
    if (planned is None and saves < 2) or (planned is not None and step + every > planned):
        return None
    left = f"{size(free)} are left" if free else "nothing is left"
    report: dict[str, Any] = {"what": "disk", "name": folder, "state": "foreseen", "at_step": step}
    report |= {"used": (event.total or 0.0) - free, "limit": event.total}
    report |= {"step": step + every} if every else {}
    when = f", about step {step + every:,}," if every else ""
    return report | {
        "text": f"the next checkpoint of {size(took)}{when} will not fit: {left} on {folder}; make room there"
    }
