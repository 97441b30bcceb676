"""Under GitHub Actions a run that failed leaves an annotation and a summary; anywhere else it leaves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from holter.commands._workflow import annotation
from holter.finding import Culprit, Cure, Ending, Finding, Verdict
from tests.conftest import Holter

SICK = "print('a line')\nlabels = {}\nlabels['50 %: a,b']\n"


def actions(folder: Path) -> dict[str, str]:
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_WORKSPACE": str(folder),
    }


def annotations(err: bytes) -> list[str]:
    return [line for line in err.decode().splitlines() if line.lstrip().startswith("::")]


def test_a_run_that_failed_is_annotated_at_its_line(holter: Holter) -> None:
    """On stderr, one line, escaped; the summary is the page of the report; stdout and exit code are the command's."""
    script = holter.script(SICK)
    done = holter("run", "--", sys.executable, script, env=actions(holter.folder))
    (line,) = annotations(done.stderr)
    summary = (holter.folder / "summary.md").read_text()

    assert (done.returncode, done.stdout) == (1, b"a line\n")
    assert line.startswith("::error file=train.py,line=3,title=Holter%3A user-error%2C established::")
    assert "50 %25: a,b" in line
    assert summary.startswith("### ")
    assert "user-error" in summary


def test_a_healthy_run_leaves_nothing(holter: Holter) -> None:
    """No annotation, no summary."""
    done = holter("run", "--", sys.executable, "-c", "print(1)", env=actions(holter.folder))

    assert (done.returncode, done.stdout, annotations(done.stderr)) == (0, b"1\n", [])
    assert not (holter.folder / "summary.md").exists()


def test_elsewhere_and_with_quiet_nothing_is_left(holter: Holter) -> None:
    """A summary's path alone is not GitHub Actions; other systems set it to say that they are not."""
    script = holter.script(SICK)
    known = actions(holter.folder)
    elsewhere = [
        holter("run", "--", sys.executable, script, env={**known, "GITHUB_ACTIONS": ""}),
        holter("run", "--quiet", "--", sys.executable, script, env=known),
    ]

    assert [annotations(done.stderr) for done in elsewhere] == [[], []]
    assert not (holter.folder / "summary.md").exists()


def test_a_summary_that_cant_be_written_costs_nothing_else(holter: Holter) -> None:
    """The exit code is the command's, and the annotation is there."""
    script = holter.script(SICK)
    known = {**actions(holter.folder), "GITHUB_STEP_SUMMARY": str(holter.folder / "gone" / "summary.md")}
    done = holter("run", "--", sys.executable, script, env=known)

    assert (done.returncode, len(annotations(done.stderr))) == (1, 1)


def test_a_summary_goes_behind_what_is_there(holter: Holter) -> None:
    """A step may run several trainings, and write a summary of its own."""
    script = holter.script(SICK)
    (holter.folder / "summary.md").write_text("# mine\n")
    for _ in range(2):
        holter("run", "--", sys.executable, script, env=actions(holter.folder))
    summary = (holter.folder / "summary.md").read_text()

    assert summary.startswith("# mine\n### ")
    assert summary.count("\n### ") == 2


def test_no_word_of_a_run_becomes_a_command_of_the_workflow() -> None:
    """Line ends, per cent signs, colons and commas are written as GitHub's toolkit writes them."""
    finding = Finding(
        "user-error", "established", "bad%\n::set-env name=x::y", (), Culprit("a,b:c%.py", 7), (Cure("mend it"),)
    )
    text = annotation(Verdict({}, Ending("exception", "The run ended\r\nhere"), False, (finding,)))

    assert text.count("\n") == text.count("\r") == 0
    assert text.startswith("::error file=a%2Cb%3Ac%25.py,line=7,title=")
    assert "Bad%25%0A::set-env name=x::y" in text


def test_a_run_that_came_through_with_a_finding_is_a_warning() -> None:
    """It did not fail, so the job is not marked as failed either."""
    finding = Finding("input-bound", "supported", "steps wait for data")

    assert annotation(Verdict({}, Ending("completed", "The run completed"), False, (finding,))).startswith("::warning ")
