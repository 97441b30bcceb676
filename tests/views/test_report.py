"""The report: one file that opens anywhere, says no secret, and Markdown that is harmless in an issue."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from bench.serve import make
from build import exception, ordinary_run
from tests.conftest import HOLTER
from tests.views.conftest import keep
from tests.views.records import hanging_run, leaking_run

from holter.diagnosis.core.doctor import verdict
from holter.figures.document import document_of
from holter.views.markdown import markdown_of
from holter.views.web.page import report_page


def report(home, *arguments, cwd=None):
    environ = {"HOLTER_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run([*HOLTER, "report", *arguments], env=environ, capture_output=True, cwd=cwd)


@pytest.fixture
def home(tmp_path):
    keep(leaking_run(), tmp_path / "home", "leaky")
    return tmp_path / "home"


def test_one_file_that_asks_nothing_of_the_network(home, tmp_path):
    """No address of another machine in it, no link, and a policy that would stop any."""
    done = report(home, "leaky", "-o", str(tmp_path / "run.html"))
    page = (tmp_path / "run.html").read_text()

    assert done.returncode == 0
    assert b"run.html" in done.stderr
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:)""", page.partition("<script")[0])
    assert "connect-src" not in page  # what is not named falls back to none
    assert "default-src 'none'" in page
    assert (tmp_path / "run.html").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["-o", "-"], b"<!doctype html>"),
        (["-o", "-", "--format", "md"], b"### The run was killed"),
        (["--format", "md", "--output", "-"], b"### The run was killed"),
    ],
)
def test_to_stdout(home, arguments, begins):
    """With `-`, and nothing else is said there."""
    done = report(home, *arguments)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(begins)


def test_the_files_name_says_what_it_holds(home, tmp_path):
    """run.md is Markdown; without a name the run's id is one."""
    report(home, "-o", "run.md", cwd=tmp_path)
    report(home, "r-0001", cwd=tmp_path)

    assert (tmp_path / "run.md").read_text().startswith("### ")
    assert (tmp_path / "r-0001.html").read_text().startswith("<!doctype html>")


def test_mistakes_are_told_in_one_line(home, tmp_path):
    """A run that is not there, and a place that can't be written."""
    unknown, unwritable = report(home, "r-9999"), report(home, "-o", str(tmp_path / "no" / "such" / "x.html"))

    assert (unknown.returncode, unwritable.returncode) == (3, 1)
    assert b"can't be written: No such file or directory" in unwritable.stderr
    assert unwritable.stderr.count(b"\n") == 1


def test_markdown_has_what_a_maintainer_asks_for():
    """What happened, why, the proof, the line, the cure, the environment, the stacks, the output."""
    record = hanging_run()
    record.output = "epoch 1\nepoch 2\n"
    page = markdown_of(document_of(record, verdict(record)))

    for words in ("### The run", "hang.", "train.py:41", "| torch | 2.13.0 |", "MainThread", "epoch 2", "Cure:"):
        assert words in page, words


def test_hostile_text_stays_text_in_markdown():
    """No tag, no mention, no image, no way out of a block of code."""
    evil = "</details><script>alert(1)</script> @team ![x](http://evil.example/x.png) **bold** | cell"
    record = exception(ordinary_run(command=("python", "x```y.py")), 59, "ValueError", evil)
    record.output = f"```\n{evil}\n````\n"
    page = markdown_of(document_of(record, verdict(record.exit(60, 1))))
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", page)

    assert "<script" not in outside.replace("\\<", "")
    assert "@team" not in outside
    assert "![x]" not in outside
    assert "**bold**" not in outside
    assert len(re.findall(r"(?<!\\)</details>", outside)) == outside.count("<details>") == 1


def test_no_text_of_a_record_ends_the_scripts_it_lies_in():
    """Whatever stands in a name or a log, the document is one element and parses as it was."""
    evil = "</script><script>alert(1)</script><!-- \u2028 ]]>"
    record = exception(ordinary_run(name=evil), 59, evil, evil)
    record.output = evil
    document = document_of(record, verdict(record.exit(60, 1)))
    page = report_page(document).decode()
    inside = re.search(r'id="document">(.*?)</script>', page).group(1)

    assert "alert(1)</script" not in page
    assert json.loads(inside) == json.loads(json.dumps(document, default=str))


def test_a_days_run_is_under_two_megabytes(tmp_path):
    """With a reading every five seconds, nine processes and a device: written, thinned and packed as recorded."""
    make(tmp_path, 24 * 3600, ends=True, every=5.0)
    done = report(tmp_path, "-o", "-")

    assert done.returncode == 0, done.stderr
    assert 100_000 < len(done.stdout) < 1_000_000
