"""The table of runs."""

from __future__ import annotations

import io

from build import TRAINER, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict
from holter.views.runs import RunRow, row_of, write_runs


def table(rows, **options):
    stream = io.StringIO()
    write_runs(rows, stream, **options)
    return stream.getvalue().splitlines()


def test_one_line_for_each_run():
    """Each run has its id, ending, time and the first finding."""
    lines = table([row_of(verdict(exception(ordinary_run(), 59, "ValueError", "bad shape").exit(60, 1)))], width=120)

    assert lines[0].split() == ["RUN", "NAME", "STARTED", "LASTED", "ENDING", "WHY"]
    assert lines[1].startswith("r-0142")
    assert "exception" in lines[1]
    assert "ValueError: bad shape" in lines[1]
    assert "1 min" in lines[1]


def test_a_process_that_was_looked_at_is_not_on_for_ever():
    """What became of it after `holter attach` let go of it nobody knows."""
    record = ordinary_run(attached=TRAINER).event("detached", 59, pid=TRAINER, cpu=0.4)

    row = row_of(verdict(record))

    assert (row.ending, row.lasted, row.healthy) == ("looked at", 59, None)
    assert row.why.startswith("was running when it was looked at")


def test_columns_stand_under_their_heads():
    """Columns are as wide as their widest cell."""
    rows = [RunRow("r-1", "short", 1.7e9, 5, "hung", "x"), RunRow("r-1000", "a longer name", None, None, "killed", "y")]

    lines = table(rows, width=100)

    assert len({line.index(word) for line, word in zip(lines, ("ENDING", "hung", "killed"), strict=True)}) == 1


def test_table_fits_its_width():
    """The last column is cut to the width."""
    lines = table([RunRow("r-1", "n" * 200, 1.7e9, 5, "exception", "w" * 500)], width=100)

    assert all(len(line) <= 100 for line in lines)


def test_names_cannot_write_to_the_terminal():
    """Control characters of a name are neutralised, and none begins a line of its own."""
    lines = table([RunRow("r-1", "a\x1b[2Jb\nc", None, None, "killed", "\x07")])

    assert len(lines) == 2
    assert "\x1b" not in lines[1]
    assert "\x07" not in lines[1]


def test_no_runs():
    """Without runs the table says how to make one."""
    assert table([]) == ["no runs yet: holter run -- COMMAND"]
