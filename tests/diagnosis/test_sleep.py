"""Machines that slept and runs that were stopped, against clocks that were set and short pauses."""

from __future__ import annotations

import pytest
from build import causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict


def slept(record, at, seconds, **more):
    """A gap of which the machine's clocks say that it was sleep."""
    return record.event("gap", at, monotonic=1.0, wall=1.0 + seconds, slept=seconds, **more)


def test_a_laptop_that_slept():
    """The run completed, and most of its time was sleep."""
    finding = verdict(slept(ordinary_run(), 30, 3600.0).exit(60, 0)).findings[0]

    assert (finding.cause, finding.grade) == ("external.sleep", "established")
    assert "1 h" in finding.claim
    assert "98 %" in finding.claim


def test_a_mac_is_kept_awake_by_its_own_tool():
    """The cure is the platform's."""
    record = slept(ordinary_run(platform="Darwin"), 30, 3600.0).exit(60, 0)

    assert "caffeinate" in verdict(record).findings[0].cures[0].how


def test_a_connection_that_did_not_survive():
    """An error of a connection soon after waking is what came of the sleep."""
    record = slept(ordinary_run(), 55, 900.0)
    exception(record, 59, "ConnectionResetError", "[Errno 104] Connection reset by peer").exit(60, 1)

    diagnosis = verdict(record)

    assert causes(diagnosis)[0] == "external.sleep"
    assert diagnosis.findings[0].culprit.line == 7


def test_an_error_of_its_own_after_a_sleep_is_its_own():
    """A mistake in the script is not the sleep's doing."""
    record = slept(ordinary_run(), 55, 900.0)
    exception(record, 59, "ValueError", "shapes do not match").exit(60, 1)

    assert causes(verdict(record)) == ["user-error"]


def test_a_record_without_sleep_clocks_is_less_sure():
    """Where only wall-clock time ran ahead, it may also have been set."""
    record = ordinary_run().event("gap", 30, monotonic=1.0, wall=3601.0).exit(60, 0)

    assert [(f.cause, f.grade) for f in verdict(record).findings] == [("external.sleep", "supported")]


@pytest.mark.parametrize(
    "gap",
    [
        {"monotonic": 1.0, "wall": 31.0, "slept": 30.0},
        {"monotonic": 1.0, "wall": 3601.0, "slept": 0.0},
        {"monotonic": 1.0, "wall": -3599.0},
        {"monotonic": 9.0, "wall": 9.0, "slept": 0.0},
    ],
)
def test_naps_set_clocks_and_a_late_recorder_are_none(gap):
    """Half a minute, a clock that was set, and readings that came late are nothing to tell."""
    assert verdict(ordinary_run().event("gap", 30, **gap).exit(60, 0)).healthy


def test_a_run_that_stands_stopped():
    """A run that was stopped and not told to go on is no hang."""
    record = ordinary_run().event("stopped", 40, pid=10, signal="SIGSTOP")
    record.live = True

    diagnosis = verdict(record)

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("external.stopped", "established")]
    assert "kill -CONT 10" in diagnosis.findings[0].cures[0].how


def test_a_long_pause_is_told():
    """A run that stood for most of its time was made slow by that."""
    record = ordinary_run(seconds=200).event("stopped", 40, pid=10, signal="SIGTSTP").event("continued", 140, pid=10)

    assert causes(verdict(record.exit(200, 0))) == ["external.stopped"]


def test_a_short_pause_is_none():
    """Ctrl-Z and fg, a debugger, a backup: nothing to tell."""
    record = ordinary_run().event("stopped", 40, pid=10, signal="SIGSTOP").event("continued", 52, pid=10)

    assert verdict(record.exit(60, 0)).healthy
