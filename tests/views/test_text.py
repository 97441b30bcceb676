"""The verdict as text: its content, its width, and that nothing in a log can take over the terminal."""

from __future__ import annotations

import io
import re

import pytest
from build import GB, MB, TRAINER, exception, memory, ordinary_run, without_memory
from test_rules import odd_record

from holter.diagnosis.core.doctor import verdict
from holter.figures.summary import summary_of
from holter.finding import Ending, Verdict
from holter.views.text import write_verdict


def shown(record, encoding="utf-8", **options):
    diagnosis = verdict(record)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    write_verdict(diagnosis, summary_of(record, diagnosis), stream, **options)
    stream.flush()
    return raw.getvalue().decode(encoding)


def leaking_run():
    record = without_memory(ordinary_run(planned=9380), 0)
    for second in range(60):
        memory(record, second, 1 * GB + second * 6.9 * GB / 60)
    return memory(record, 60.2, 1 * MB, oom_kill=1).exit(60, 137, "SIGKILL")


def test_healthy_run_is_one_line():
    """A run that went well gets one line with time, steps, epochs, peak memory and where to read on."""
    record = ordinary_run(planned=550).exit(60, 0)

    assert shown(record) == ("✓ python train.py completed in 1 min: 550 steps, 1 epoch, peak 2.0 GB (r-0142)\n")


def test_sick_run_has_every_block():
    """How it ended, why, the curve against the limit, the kernel's counter, the processes, the cure."""
    page = shown(leaking_run())

    assert page.startswith("✗ python train.py was killed by the kernel: out of memory, 1 min in,")
    assert "step 550 of 9,380" in page
    assert re.search(r"Why +Memory grew [\d.]+ MB per step", page)
    assert re.search(r"Proof +run's memory +[\d.]+ GB [▁▂▃▄▅▆▇█]+ [\d.]+ GB ── limit 8.0 GB", page)
    assert "oom_kill 0 → 1" in page
    assert "pid 10 trainer: 7.8 GB, killed" in page
    assert re.search(r"Cure +\w", page)


@pytest.mark.parametrize(("kind", "told"), [("stopped-early", True), ("interrupted", False)])
def test_an_end_that_nothing_explains_says_so(kind, told):
    """Nothing found is an answer; of a Ctrl-C there is nothing to find."""
    ending = Ending(kind, "The run stopped early with exit code 0", exit_code=0)
    found = Verdict({"id": "r-0001", "command": ["python", "t.py"]}, ending, False, ())
    page = io.StringIO()
    write_verdict(found, summary_of(ordinary_run().exit(60, 0), found), page, color=False)

    assert ("Not known: no error, signal or warning" in page.getvalue()) is told


def test_curve_rises():
    """The bars of a growing run grow."""
    bars = re.search(r"[▁▂▃▄▅▆▇█]{5,}", shown(leaking_run())).group(0)

    assert list(bars) == sorted(bars)
    assert bars[0] < bars[-1] == "█"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_page_fits_its_width(width):
    """No line is wider than asked for, and a long word does not change that."""
    record = exception(ordinary_run(), 59, "ValueError", "x" * 300 + " at 1234567 GB").exit(60, 1)

    for line in shown(record, width=width).splitlines():
        assert len(line) <= width


def test_number_and_unit_stay_together():
    """No line ends with a number whose unit is on the next."""
    for width in range(50, 81):
        for line in shown(leaking_run(), width=width).splitlines():
            assert not re.search(r"\d$", line) or not re.search(r"(of|at|by) [\d.]+$", line), line


def test_exception_has_the_line_and_its_code():
    """The culprit's line and the code on it are shown."""
    assert re.search(
        r"Line +/home/u/train\.py:41 +fit\(model\)",
        shown(exception(ordinary_run(), 59, "ValueError", "x", line=41).exit(60, 1)),
    )


@pytest.mark.parametrize("width", [60, 80, 100])
def test_long_code_is_cut_and_not_torn(width):
    """Code that has no room beside its place gets the line below it; longer than that, it ends in a sign."""
    code = "loss = criterion(model(batch, mask=mask, positions=positions), target.to(device, non_blocking=True), w)"
    record = exception(ordinary_run(), 59, "ValueError", "x", line=41)
    record.lines("exception")[0]["frames"][0] |= {"code": code}
    rows = shown(record.exit(60, 1), width=width).splitlines()
    at = next(n for n, row in enumerate(rows) if row.startswith("  Line"))

    assert rows[at].split() == ["Line", "/home/u/train.py:41"]
    assert rows[at + 1].strip().rstrip("…").rstrip() in code
    assert rows[at + 1].endswith("…") == (len(code) + 11 > width)
    assert rows[at + 2] == ""


def test_a_long_line_of_a_diff_goes_on_further_in():
    """What is folded of a diff stands deeper than the sign of the next line, so that none is taken for another."""
    from dataclasses import replace

    from holter.finding import Cure

    diagnosis = verdict(leaking_run())
    how = "- " + "call(" + ", ".join(f"argument_{n}=value_{n}" for n in range(12)) + ")\n+ call()"
    finding = replace(diagnosis.findings[0], cures=(Cure("mend it", how, "exact"),))
    stream = io.StringIO()
    write_verdict(replace(diagnosis, findings=(finding,)), summary_of(leaking_run(), diagnosis), stream, width=80)
    rows = stream.getvalue().splitlines()
    first = next(n for n, row in enumerate(rows) if row.startswith("           - call("))
    last = next(n for n, row in enumerate(rows) if row.startswith("           + call()"))

    assert last > first + 1
    assert all(row.startswith(" " * 17) and len(row) <= 80 for row in rows[first + 1 : last])


def test_the_page_leads_to_the_report():
    """Its last row is the command that writes the page with all charts."""
    assert shown(leaking_run()).rstrip().endswith("More   holter report r-0142 -o run.html")


def test_escapes_from_logs_are_neutralised():
    """Titles, colours and screen-clearing codes in names, messages and commands never reach the terminal."""
    evil = "\x1b]0;owned\x07\x1b[2J\r\b\x9b31m\u202eabc"
    record = exception(ordinary_run(command=("python", f"{evil}.py")), 59, evil, evil)
    record.meta["id"] = f"r-1{evil}"
    record.lines("exception")[0]["frames"][0] |= {"file": f"/home/u/{evil}.py", "code": evil}

    page = shown(record.exit(60, 1))

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)


def test_no_colour_without_a_terminal():
    """A pipe gets plain text; colour comes only when asked for."""
    record = leaking_run()

    assert "\x1b[" not in shown(record)
    assert "\x1b[" in shown(record, color=True)


def test_colour_changes_no_word():
    """With the codes taken out, the coloured page is the plain one."""
    record = leaking_run()

    assert re.sub(r"\x1b\[[\d;]*m", "", shown(record, color=True)) == shown(record)


def test_no_color_is_obeyed(monkeypatch):
    """NO_COLOR wins over a terminal."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    record = leaking_run()
    diagnosis = verdict(record)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured, plain = Terminal(), Terminal()
    write_verdict(diagnosis, summary_of(record, diagnosis), coloured)
    monkeypatch.setenv("NO_COLOR", "1")
    write_verdict(diagnosis, summary_of(record, diagnosis), plain)

    assert "\x1b[" in coloured.getvalue()
    assert "\x1b[" not in plain.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_streams_that_know_no_signs_get_plain_ones(encoding):
    """Where ✗ and ▁ can't be written, the page is still whole."""
    page = shown(leaking_run(), encoding=encoding)

    assert page.startswith("X python train.py was killed")
    assert "oom_kill 0 -> 1" in page
    assert re.search(r"GB [_.:\-=+*#]{5,} [\d.]+ GB", page)


def test_hang_shows_the_blocked_threads_own_frames():
    """The user's frames of the blocked thread are in the proof."""
    frames = [
        {"file": "/v/lib/python3.11/queue.py", "line": 1, "function": "get"},
        {"file": "/home/u/train.py", "line": 41, "function": "load", "user": True},
        {"file": "/home/u/train.py", "line": 60, "function": "<module>", "user": True},
    ]
    record = ordinary_run().event("stall", 75, pid=TRAINER, since=159.0, limit=12.0, cpu=0.0, same_place=True)
    record.event("stacks", 76, pid=TRAINER, reason="stall", threads=[{"name": "MainThread", "frames": frames}])

    page = shown(record.exit(90, None, "SIGINT"))

    assert "waits at train.py:41" in page
    assert "called from: train.py:60" in page
    assert "queue.py:1" not in page


def test_damage_is_told():
    """What could not be read of the record is said."""
    record = leaking_run()
    record.damage.append("events.jsonl: 3 lines could not be read")

    assert "3 lines could not be read" in shown(record)


def test_odd_records_are_shown_within_the_page():
    """Whatever a damaged record holds, the page is printable and within its width."""
    for seed in range(300):
        record = odd_record(seed)

        page = shown(record)

        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", page), seed
        assert verdict(record).healthy or max(map(len, page.splitlines())) <= 80, seed


def test_what_was_foretold_is_shown_with_its_time():
    """The page says what was said while the run was on, and how far in."""
    record = leaking_run().event("forecast", 20, what="memory", text="out of memory in about 40 s, at step 550")

    assert re.search(r'Told +20 s in: "out of memory in about 40 s,', shown(record))


def test_a_rule_that_failed_is_told(monkeypatch):
    """A rule of ours that could not be asked is named: its silence is no word on the run."""
    from holter.diagnosis.core import doctor
    from holter.diagnosis.core.rule import Rule

    monkeypatch.setattr(doctor, "find_rules", lambda: (Rule("nan.math", "", lambda _r, _e: 1 / 0),))

    assert "a rule could not be asked: nan.math: ZeroDivisionError" in shown(leaking_run())
