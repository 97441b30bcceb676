"""Which illness of family `leak` one growth is: the detail with the best evidence, and never two for the same growth.

The order is from what was seen to what is left over: a holder with a name, models made anew, pages that workers copy,
caches of a library's own that the script asks for, memory of the driver's, and the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.bounds import cache_like, kept_within_bounds
from holter.diagnosis.leak.creations import Births, births_of, goes_with
from holter.diagnosis.leak.leaking import Leak, leak_of
from holter.diagnosis.leak.library_cache import LibraryCache, library_cache
from holter.diagnosis.leak.pinned_heap import PINNED, pins_the_heap
from holter.diagnosis.leak.retained import Holder, best_of, holders_of, siblings_share
from holter.diagnosis.leak.retained_line import fed_back
from holter.diagnosis.leak.summed_graph import summed_graph
from holter.diagnosis.memory.driver_memory import DriverGrowth, driver_growth
from holter.diagnosis.memory.exhaustion import Exhaustion, exhaustion_of
from holter.diagnosis.memory.memory import memory_curve
from holter.diagnosis.memory.memory_looks import gathered_by, grown_in_a_loop
from holter.diagnosis.memory.worker_pages import WorkerPages, copied_pages
from holter.finding import Ending, Evidence, Forecast, Grade
from holter.record.events.looks import RetainedObjects
from holter.record.events.timeline import Processes
from holter.units import count, share, size

# A holder of this share of the growth is the growth; one of less than the second is named but proves little.
MOST, SOME = 0.6, 0.08
_TIGHT, _LARGE = 0.8, 0.2  # of the limit
_SEVERAL = 3
# Results that are kept until the end are no illness of a run that came to its end with room to spare.
_FINE_IF_IT_FITS = ("leak.tensors-kept", "leak.cache-unbounded")


@dataclass(frozen=True)
class LeakCause:
    """One growth with its cause, as a rule tells it."""

    cause: str
    grade: Grade
    words: str
    evidence: tuple[Evidence, ...]
    leak: Leak | None = None
    holder: Holder | None = None
    births: Births | None = None
    pages: WorkerPages | None = None
    cache: LibraryCache | None = None
    driver: DriverGrowth | None = None
    gathered: Frame | None = None  # the line that keeps more, seen from outside: no census was taken

    @property
    def forecast(self) -> Forecast | None:
        """Give what the trend says is still to come."""
        return self.leak.forecast if self.leak is not None else None


@once
def leak_cause(record: RecordLike, ending: Ending) -> LeakCause | None:
    """Name the one cause of the run's growth; None where nothing grew, or what grew has an end that fits."""
    ran_out = exhaustion_of(record, ending)
    if ran_out is not None and ran_out.pages is not None:
        return _of_pages(ran_out, ran_out.pages)
    leak = leak_of(record, ending)
    if leak is None:
        held = _held_without_a_trend(record, ending) or _driver_alone(record, ending)
        return held or _copied_without_a_trend(record, ending)
    found = LeakCause("leak.native", leak.grade, leak.words, leak.evidence, leak)
    # What another process holds explains the growth of this one only where it was seen to grow.
    holders = holders_of(record, leak.pids) or tuple(h for h in holders_of(record) if h.length_before is not None)
    holder = fed_back(record, best_of(one for one in holders if one.share >= SOME or one.graph), holders)
    births = next(iter(births_of(record)), None)
    if births is not None and _rebuilt(record, births, holder, leak):
        # Of functions that are traced anew the time is told, unless it is the memory that ended the run.
        return _of_births(found, births, holder, leak) if births.what != "function" or leak.ended_run else None
    if holder is not None and not leak.ended_run and _ends(record, holder, leak):
        return None
    pages = copied_pages(record)
    if pages is not None and pages.grown < 0.3 * leak.rise:
        pages = None
    if pages is not None and holder is not None and holder.length_before is None:
        holder = None  # seen once, it may have been there all along; the pages were seen to grow
    if holder is not None and (holder.share >= SOME or holder.graph_grew or _graph_list(holder)):
        return _of_holder(record, found, holder, ending.kind == "completed")
    if pages is not None:
        grade = _graded(leak, pages.proved / leak.rise)
        if grade == "hypothesis" and _tight(record, leak):
            grade = "supported"
        return replace(found, cause="leak.worker-copy", pages=pages, grade=grade)
    cache = library_cache(record, leak)
    if cache is not None:
        grade = leak.grade if leak.ended_run else "hypothesis"
        return replace(found, cause="leak.cache-unbounded", cache=cache, grade=grade)
    driver = driver_growth(record)
    if driver is not None and driver.rise >= 0.5 * leak.rise:
        return replace(found, cause="leak.driver", driver=driver)
    if not leak.progress.step and grown_in_a_loop(record) is not None and not record.of(RetainedObjects):
        return replace(found, cause="leak.tensors-kept", gathered=gathered_by(record))
    pinning = next((one for one in holders if pins_the_heap(one)), None)
    return _of_holder(record, found, pinning, ending.kind == "completed") if pinning is not None else found


def _of_pages(ran_out: Exhaustion, pages: WorkerPages) -> LeakCause:
    """Workers copied what they shared until memory ran out: measured in them it is proved, in the sum it is likely."""
    grade = ran_out.grade
    if grade == "supported" and pages.proved >= MOST * pages.grown:
        grade = "established"
    return LeakCause("leak.worker-copy", grade, ran_out.words, ran_out.evidence, pages=pages)


def _copied_without_a_trend(record: RecordLike, ending: Ending) -> LeakCause | None:
    """Copies that come to an end once all is copied: told where they take much of what there is."""
    pages, curve = copied_pages(record), memory_curve(record)
    if pages is None or curve is None or not curve.limit or pages.grown < _LARGE * curve.limit:
        return None
    tight = curve.peak >= _TIGHT * curve.limit
    if not tight and ending.kind == "running":
        return None
    words = f"the run held {size(curve.peak)} at most, {share(curve.peak / curve.limit)} of {curve.limit_words}"
    proved = pages.proved >= MOST * pages.grown
    grade: Grade = "hypothesis" if not tight else "established" if proved else "supported"
    return LeakCause("leak.worker-copy", grade, words, (Evidence("memory", curve.standing),), pages=pages)


def _graded(leak: Leak, explained: float) -> Grade:
    if leak.grade == "hypothesis" and not leak.ended_run:
        return "hypothesis"
    return "established" if explained >= MOST else "supported"


def _tight(record: RecordLike, leak: Leak) -> bool:
    """Tell whether memory was short at the end: near the limit, or swapped out in part."""
    if leak.curve.nearness >= _TIGHT:
        return True
    read = record.readings(Processes)
    swapped = read[-1][1].swap if read else None
    return (swapped or 0.0) >= 0.05 * leak.curve.late


def _rebuilt(record: RecordLike, births: Births, holder: Holder | None, leak: Leak) -> bool:
    """Tell whether models made anew are the growth: nothing else holds it, and it goes with their number."""
    if holder is not None and holder.kind in ("model", "optimizer") and holder.share >= SOME:
        return True
    if holder is not None and holder.share >= MOST:
        return False
    if births.what == "optimizer" and births.alive < 0.5 * births.made:
        return False  # a model that is compiled anew: its optimizers are gone, what was traced with them is not
    begin, end = leak.curve.points[0][0], leak.curve.points[-1][0]
    late = births.counts[-1][0] >= begin + 0.4 * (end - begin)
    stays = holder is None or births.leaves_traces(record)  # what is gone may have left something
    return late and (births.kept or (stays and goes_with(births, leak.curve.points) >= 0.8))


def _of_births(found: LeakCause, births: Births, holder: Holder | None, leak: Leak) -> LeakCause:
    closely = goes_with(births, leak.curve.points)
    explained = holder.share if holder is not None and holder.kind in ("model", "optimizer") else 0.0
    proved = explained >= MOST or (births.kept and closely >= 0.9)
    evidence = [Evidence(f"live {births.what}s", f"{births.alive} of {births.made} made on line {births.culprit.line}")]
    if holder is not None and explained:
        evidence.append(_held(holder))
    grade = _graded(leak, MOST if proved else 0.0)
    return replace(
        found, cause="leak.model-rebuilt", births=births, holder=holder if explained else None,
        grade=grade, evidence=(*leak.evidence, *evidence),
    )  # fmt: skip


def _of_holder(record: RecordLike, found: LeakCause, holder: Holder, completed: bool) -> LeakCause:
    leak = found.leak
    assert leak is not None
    cause = _kind_of(record, holder)
    # The first census alone can't tell what grew from what was there.
    explained = holder.share if holder.length_before is not None else min(holder.share, MOST - 0.01)
    if explained >= 0.3:
        explained = max(explained, siblings_share(holder, holders_of(record, leak.pids)))
    longer, steps = holder.nodes - holder.nodes_before, holder.step - holder.step_before
    if holder.single and holder.graph_grew and holder.saved and longer >= 0.7 * max(1, steps):
        explained = MOST  # one more graph at each step, with all that it saved: how much that is need not be weighed
    grade = _graded(leak, explained)
    weak = holder.share < SOME and not holder.graph
    if weak and pins_the_heap(holder):
        weak = not leak.ended_run
        found = replace(found, words=f"{found.words}; {PINNED}")
    if weak or (completed and cause in _FINE_IF_IT_FITS and not _tight(record, leak)):
        grade = "hypothesis"
    return replace(found, cause=cause, holder=holder, grade=grade, evidence=(*leak.evidence, _held(holder)))


def _kind_of(record: RecordLike, holder: Holder) -> str:
    if holder.kind in ("model", "optimizer"):
        return "leak.model-rebuilt"
    if cache_like(record, holder):
        return "leak.cache-unbounded"
    return "leak.graph-retained" if holder.graph else "leak.tensors-kept"


def _graph_list(holder: Holder) -> bool:
    """Tell of graphs whose size could not be weighed, or not to the end: some more of them, or one with every step."""
    steps = holder.step - holder.step_before
    more = holder.length - (holder.length_before or 0)
    if not holder.graph or not holder.grew_in_length:
        return False
    return (holder.cut_short and more >= _SEVERAL) or (holder.saved is None and more >= 0.2 * max(1, steps))


def _held(holder: Holder) -> Evidence:
    was = f" (it had {count(holder.length_before)})" if holder.length_before else ""
    of_growth = f", {share(min(1.0, holder.share))} of the growth till then" if holder.share >= 0.01 else ""
    if holder.cut_short and holder.share < MOST:
        of_growth = ", and what lies deeper in the graphs"
    grown = f"{size(holder.grown)} more{of_growth}" if holder.grown > 0 else f"{size(holder.held)}"
    if holder.graph_grew:
        was = f"; its graph went from {count(holder.nodes_before)} to {count(holder.nodes)} nodes"
        return Evidence("holder", f"{holder.where}{was}, by {holder.seen_at}", holder.when)
    what = "" if holder.single else f"{holder.entries}{was}, "
    return Evidence("holder", f"{holder.where}: {what}{grown}, by {holder.seen_at}", holder.when)


def _ends(record: RecordLike, holder: Holder, leak: Leak) -> bool:
    """Tell of what fills up and then stays: a buffer with a bound, a cache that has room for all there is."""
    limit, full = leak.curve.limit, holder.full_size
    if full is not None:
        return not limit or leak.curve.late + (full - holder.held) < 0.9 * limit
    return kept_within_bounds(record.source(holder.file), holder.variable)


def _held_without_a_trend(record: RecordLike, ending: Ending) -> LeakCause | None:
    """Where memory ran out on a curve of no clear shape, a holder that explains it says more than the shape."""
    ran_out = exhaustion_of(record, ending)
    if ran_out is None or ran_out.curve is None:
        return None
    holder = best_of(holders_of(record))
    limit = ran_out.curve.limit or ran_out.curve.peak
    summed = summed_graph(record, ran_out) if holder is None or holder.share < MOST else None
    if summed is not None:
        evidence = (*ran_out.evidence, summed.evidence)
        return LeakCause("leak.graph-retained", "supported", summed.words, evidence, holder=summed.holder)
    if holder is None or holder.share < MOST or not holder.grew_in_length or holder.grown < 0.25 * limit:
        return None
    if holder.kind in ("model", "optimizer") and (holder.length_before or 0) == 0:
        return None  # a model is made once, and may just be large
    words = f"memory grew by {size(holder.grown)} within {count(progress_of(record).step or 0)} steps and ran out"
    proved = ending.kind in ("oom-killed", "exception") and holder.length_before is not None
    grade: Grade = "supported" if proved else "hypothesis"
    evidence = (*ran_out.evidence, _held(holder))
    return LeakCause(_kind_of(record, holder), grade, words, evidence, holder=holder)


def _driver_alone(record: RecordLike, ending: Ending) -> LeakCause | None:
    driver = driver_growth(record)
    if driver is None or not driver.alarming:
        return None
    ran_out = exhaustion_of(record, ending)
    grade: Grade = "supported" if ran_out is not None and ran_out.on_device else "hypothesis"
    evidence = ran_out.evidence if ran_out is not None else ()
    return LeakCause("leak.driver", grade, driver.words, evidence, driver=driver)
