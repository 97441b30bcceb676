"""What lies in the folder that the user stands in, or was put in the way, is neither executed nor written to."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import holter as package
from holter.own_process import own_process
from holter.record import place
from tests.conftest import Holter
from tests.views.conftest import Served

PROGRAM = str(Path(sys.executable).with_name("holter"))
# Modules that every process of ours imports sooner or later.
TRAPS = ("json", "gzip", "shlex", "queue", "select", "socket", "click", "holter", "tensorboard", "urllib", "http")


@pytest.fixture
def hostile(holter: Holter) -> Path:
    """A working folder whose modules leave a mark when they are executed."""
    for name in TRAPS:
        (holter.folder / f"{name}.py").write_text(f"open({str(holter.folder / 'executed')!r}, 'a').write('{name} ')\n")
    return holter.folder / "executed"


def started(holter: Holter, *words: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PROGRAM, *words],
        cwd=holter.folder,
        env=holter.environ(**environ),
        capture_output=True,
        timeout=600,
        check=False,
    )


def test_modules_in_the_working_folder_are_not_executed_beside_a_run(holter: Holter, hostile: Path) -> None:
    """Not by the process that sends a notice, nor by the one that hands numbers on to a tool."""
    words = ["run", "--notify=http://127.0.0.1:9/", "--export", "tensorboard", "--", sys.executable, "-Ic", "1/0"]
    done = started(holter, *words)

    assert done.returncode == 1
    assert b"a notice could not be sent" in done.stderr, "the notice's process was not even started"
    assert not hostile.exists(), hostile.read_text()


def test_modules_in_the_working_folder_are_not_executed_by_the_server(
    holter: Holter, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The desk that reads records is started where the server was."""
    started(holter, "run", "--", "true")
    monkeypatch.chdir(holter.folder)
    monkeypatch.setattr("tests.views.conftest.HOLTER", [PROGRAM])
    served = Served(holter.home)
    try:
        shown = served.json("/api/run/r-0001")
    finally:
        served.close()

    assert shown["run"]["id"] == "r-0001"
    assert not hostile.exists(), hostile.read_text()


def test_python_m_holter_imports_nothing_from_the_working_folder(holter: Holter, hostile: Path) -> None:
    """But for what Python itself looks up there before us: the package that it was asked for."""
    (holter.folder / "holter.py").unlink()
    done = holter("ls")

    assert done.stdout.startswith(b"no runs yet")
    assert not hostile.exists(), hostile.read_text()


@pytest.mark.parametrize("path", ["", ":", ".", ":/nowhere", "HERE"])
def test_a_process_of_ours_does_without_the_working_folder(holter: Holter, hostile: Path, path: str) -> None:
    """Also where PYTHONPATH leads there; other folders that it names stay."""
    (holter.folder / "mine").mkdir()
    (holter.folder / "mine" / "own.py").write_text(
        "def main():\n    import json, sys\n    print(json.dumps(sys.argv))\n"
    )
    given = os.pathsep.join([path.replace("HERE", str(holter.folder)), str(holter.folder / "mine")])
    done = subprocess.run(
        own_process("own", "a word"), cwd=holter.folder, env=holter.environ(PYTHONPATH=given), capture_output=True
    )

    assert json.loads(done.stdout) == ["-c", "a word"], done.stderr.decode()
    assert not hostile.exists(), hostile.read_text()


def test_no_process_of_ours_is_started_with_m() -> None:
    """It would put the working folder first on the path."""
    root = Path(package.__file__).parent
    texts = {
        (path.name, node.value)
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value == "-m"
    }

    assert not texts


def test_a_report_lies_where_the_user_said_whatever_the_record_calls_itself(holter: Holter) -> None:
    """The id of a record from elsewhere may be a path; the folder's name is what the user typed."""
    holter.run("true")
    foreign = holter.folder / "foreign"
    os.rename(holter.record(), foreign)
    meta = json.loads((foreign / place.META).read_bytes())
    for name in ("../../outside", str(holter.folder.parent / "outside"), "a/b", ".."):
        (foreign / place.META).write_text(json.dumps({**meta, "id": name}))
        done = holter("report", "foreign")

        assert (done.returncode, (holter.folder / "foreign.html").exists()) == (0, True), done.stderr
        (holter.folder / "foreign.html").unlink()
    assert sorted(path.name for path in holter.folder.parent.iterdir()) == ["home", "work"]
    assert [path.name for path in holter.folder.iterdir()] == ["foreign"]


def test_a_report_follows_no_link_that_the_user_did_not_name(holter: Holter) -> None:
    """Without -o a link of that name is someone's trap; with -o it is the user's own word."""
    holter.run("true")
    kept = holter.folder / "kept.txt"
    kept.write_text("mine")
    (holter.folder / "r-0001.html").symlink_to(kept)
    done = holter("report")

    assert done.returncode == 1
    assert b"can't be written" in done.stderr
    assert kept.read_text() == "mine"
    assert holter("report", "-o", "r-0001.html").returncode == 0
    assert kept.read_text().startswith("<!doctype html>")


HOME = """
import os, sys
from holter.record import place
os.setuid(54321)
print(place.home())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: those of pytest are private, and made so again by each pytest that starts."""
    with tempfile.TemporaryDirectory(prefix="holter-test-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user without a home")
@pytest.mark.parametrize("taken", ["owned by another", "open to others", "a link"])
def test_a_folder_that_someone_else_put_there_is_not_taken_for_a_home(open_folder: Path, taken: str) -> None:
    """A user without a home gets another folder, is told so once, and finds it again."""
    shared = open_folder / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    usual = shared / "holter-home-54321"
    if taken == "a link":
        (open_folder / "elsewhere").mkdir()
        os.chown(open_folder / "elsewhere", 54321, 0)
        usual.symlink_to(open_folder / "elsewhere")
    else:
        usual.mkdir(mode=0o700)
        if taken == "open to others":
            os.chown(usual, 54321, 0)
            usual.chmod(0o770)
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(shared)}
    first, again = (
        subprocess.run([sys.executable, "-c", HOME], env=environ, capture_output=True, text=True) for _ in range(2)
    )
    found = Path(first.stdout.strip())

    assert found != usual
    assert found.parent == shared, first.stderr
    assert (found.lstat().st_uid, found.lstat().st_mode & 0o777) == (54321, 0o700)
    assert f"{usual} is not a private folder of yours, so records go to {found}" in first.stderr
    assert (again.stdout, again.stderr) == (first.stdout, "")
