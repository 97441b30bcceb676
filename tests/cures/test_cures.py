"""The first cure of each verdict, applied to the patient as it is written: the patient comes to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.cures.ward import NAMES, Course, course_of, pasted, settings
from tests.endings.ward import as_text

_AT_ONCE = 3  # some wait more than they compute
_LESS = 0.6  # of what it took before the cure

SLOW = ("input-bound", "recompile", "overhead")
TOUCHED = (*SLOW, "leak", "oversize", "nan")  # cures of these could change what is learned


@pytest.fixture(scope="module")
def courses(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Course]]:
    """Every patient that a test asks about, a few at a time; the longest are not last."""
    folder = tmp_path_factory.mktemp("cures")
    here = [item for item in request.session.items if item.path == request.path]
    wanted = {
        item.callspec.params.get("name")
        for item in here
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    pool = ThreadPoolExecutor(_AT_ONCE)
    begun: dict[str, Future[Course]] = {n: pool.submit(course_of, n, folder / n) for n in NAMES if n in wanted}
    yield lambda name: begun[name].result()
    pool.shutdown(cancel_futures=True)
    for future in begun.values():
        if not future.cancelled() and future.exception() is None:
            for case in (future.result().sick, future.result().cured):
                if case is not None:
                    case.holter.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_first_cure_helps(courses: Callable[[str], Course], name: str) -> None:
    """The run that died, hung, crawled or lost its numbers completes, and the same is not said of it again."""
    course = courses(name)

    known = settings(name)
    assert course.cause in (known["cause"], known.get("also")), as_text(course.sick)
    if "line" in known:
        rows = [line.strip() for line in course.sick.text.splitlines()]
        assert course.sick.first()["culprit"]["line"] == rows.index(known["line"]) + 1, as_text(course.sick)
    assert course.cured is not None, f"{course.why_not}: {course.cure}"
    assert course.cured.kind() == "completed", f"{course.cure}\n{as_text(course.cured)}"
    assert course.told_again() == [], course.cure


@pytest.mark.parametrize("name", [name for name in NAMES if settings(name)["cause"].startswith(SLOW)])
def test_a_slow_run_takes_less_after_its_cure(courses: Callable[[str], Course], name: str) -> None:
    """The same work with less computing, by the script's own clock of that, or with less waiting for any one process.

    How long it takes by the wall hangs on what runs beside it.
    """
    course = courses(name)

    assert course.cured is not None
    assert course.cured.printed("SECONDS") < _LESS * course.sick.printed("SECONDS"), course.cure


@pytest.mark.parametrize("name", [name for name in NAMES if settings(name)["cause"].startswith(TOUCHED)])
def test_exactly_is_said_only_of_what_was_seen_to_be_so(courses: Callable[[str], Course], name: str) -> None:
    """All losses that the run printed before it died are printed again, to the last digit; without any, nothing is."""
    course = courses(name)
    before = [line for line in course.sick.out.splitlines() if line.startswith("loss")]

    assert course.cured is not None
    after = course.cured.out.splitlines()[: len(before)]
    assert course.cure["keeps"] != "exact" or (before and before == after), course.cure


@pytest.mark.parametrize("name", [name for name in NAMES if settings(name)["cause"] == "oversize.batch"])
def test_the_commands_to_paste_work(courses: Callable[[str], Course], name: str, tmp_path) -> None:
    """A run that did not fit ends with a plan and a healing run of its own command: both do what they promise."""
    course = courses(name)
    plan, heal = (one["how"] for one in course.sick.first()["cures"][-2:])

    planned = pasted(course, plan, tmp_path / "plan", settings(name))
    healed = pasted(course, heal, tmp_path / "heal", settings(name))

    assert plan.startswith("holter plan -- ")
    assert planned.returncode == 0, planned.stderr.decode()
    assert heal.startswith("holter run --heal -- ")
    assert healed.returncode == 0, healed.stderr.decode()
