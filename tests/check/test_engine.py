"""Whatever lies at a path, the rest goes on: what can't be read gets one clear line."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holter.check.engine import check_source
from holter.check.settings import Settings
from holter.check.source import parse_bytes

SICK = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"


def check(*arguments: str | Path, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holter", "check", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sick.py").write_text(SICK)
    return tmp_path


def test_exit_codes_tell_clean_sick_and_unreadable_apart(folder: Path) -> None:
    """0, 1 and 2; what was found outweighs what could not be read."""
    (folder / "well.py").write_text("import torch\n")
    (folder / "broken.py").write_text("import torch\ndef (:\n")

    assert check("well.py", cwd=folder).returncode == 0
    assert check("sick.py", cwd=folder).returncode == 1
    assert check("broken.py", cwd=folder).returncode == 2
    assert check(".", cwd=folder).returncode == 1


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("broken.py", b"import torch\nwith torch.cuda.amp.autocast(:\n", "does not parse"),
        ("bytes.py", b"import torch\nname = '\xff\xfe'\n", "can't be decoded"),
        ("coding.py", b"# coding: no-such-coding\nimport torch\n", "can't be decoded"),
        ("null.py", b"import torch\n\0\0\0", "null bytes"),
        ("huge.py", b"import torch\n" + b"x = 1\n" * 400_000, "2.4 MB, more than the limit of 2 MB"),
        ("values.ipynb", b'{"cells": [' + b"{}," * 2_000_000 + b"{}]}", "2,000,000 values"),
        ("deep.py", b"import torch\nx = " + b"(" * 5000 + b")" * 5000, "does not parse"),
        ("binary.ipynb", bytes(range(256)) * 10, "not a notebook"),
        ("list.ipynb", b"[1, 2]", "not a notebook"),
        ("cells.ipynb", b'{"cells": 3}', "not a notebook"),
        ("cell.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": "def (:"}]}).encode(), "cell 1"),
    ],
)
def test_a_file_that_cannot_be_read_gets_one_line_and_the_rest_goes_on(
    folder: Path, name: str, content: bytes, why: str
) -> None:
    """On stderr, with its name and the reason; the finding in the file beside it is told all the same."""
    (folder / name).write_bytes(content)

    done = check(".", cwd=folder)

    assert "sick.py:2:10: HLT303" in done.stdout
    assert [name in line and why in line for line in done.stderr.splitlines()] == [True]


def test_pipes_and_devices_are_told_and_left(folder: Path) -> None:
    """A pipe that nobody writes to and a link to a device without an end: one line each, and the rest goes on."""
    os.mkfifo(folder / "pipe.py")
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "pyproject.toml").symlink_to("/dev/zero")

    done = check("pipe.py", "zero.py", "sick.py", cwd=folder)

    assert done.stdout.count("HLT303") == 1
    assert done.stderr.splitlines() == [f"holter: {name}: it is not a regular file" for name in ("pipe.py", "zero.py")]


def test_links_that_lead_in_circles_are_told_and_left(folder: Path) -> None:
    """A folder that holds itself, a link to itself, a link to nowhere."""
    (folder / "inner").mkdir()
    (folder / "inner" / "again").symlink_to(folder, target_is_directory=True)
    (folder / "self.py").symlink_to(folder / "self.py")
    (folder / "gone.py").symlink_to(folder / "nowhere.py")

    done = check(".", cwd=folder)

    assert done.stdout.count("HLT303") == 1
    assert {"inner/again", "self.py", "gone.py"} == {
        line.split(": ")[1].removeprefix("./") for line in done.stderr.splitlines()
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told(folder: Path) -> None:
    """With the system's own reason."""
    (folder / "secret.py").write_text(SICK)
    (folder / "secret.py").chmod(0)

    assert "permission denied" in check(".", cwd=folder).stderr


def test_other_peoples_code_is_left_out_of_folders_and_read_when_named(folder: Path) -> None:
    """Environments, builds and hidden folders; a path on the command line is always read."""
    for name in (".venv", "build", "node_modules", ".hidden"):
        (folder / name).mkdir()
        (folder / name / "sick.py").write_text(SICK)

    assert check(".", cwd=folder).stdout.count("HLT303") == 1
    assert check("build/sick.py", cwd=folder).stdout.count("HLT303") == 1


def test_a_file_is_checked_once_however_often_it_is_named(folder: Path) -> None:
    """By its name, by its folder, by a link."""
    (folder / "link.py").symlink_to("sick.py")

    assert check("sick.py", ".", "sick.py", cwd=folder).stdout.count("HLT303") == 1


def test_stdin_is_read_for_a_dash_and_fixed_to_stdout(folder: Path) -> None:
    """As a filter: with --fix the mended script is all that stdout has."""
    told = check("-", cwd=folder, stdin=SICK.encode())
    mended = check("-", "--fix", cwd=folder, stdin=SICK.encode())

    assert "-:2:10: HLT303" in told.stdout
    assert (mended.returncode, mended.stdout) == (0, SICK.replace("cuda.amp.GradScaler()", 'amp.GradScaler("cuda")'))


def test_fix_writes_and_diff_only_shows(folder: Path) -> None:
    """--diff leaves the file as it was and exits with 1; --fix mends it and exits with 0."""
    shown = check("sick.py", "--diff", cwd=folder)
    untouched = (folder / "sick.py").read_text()
    mended = check("sick.py", "--fix", cwd=folder)

    assert untouched == SICK
    assert '+scaler = torch.amp.GradScaler("cuda")' in shown.stdout
    assert (shown.returncode, mended.returncode) == (1, 0)
    assert "1 fixed, nothing found" in mended.stdout
    assert 'torch.amp.GradScaler("cuda")' in (folder / "sick.py").read_text()


def test_a_fix_that_does_not_fit_on_the_disk_leaves_the_script_as_it_was(small_disk: Path) -> None:
    """Told in one line with exit code 1, since what was found is still there; nothing is left beside it."""
    script = small_disk / "sick.py"
    script.write_text(SICK)
    subprocess.run(["dd", "if=/dev/zero", f"of={small_disk / 'filler'}"], capture_output=True, check=False)

    done = check("sick.py", "--fix", cwd=small_disk)

    assert script.read_text() == SICK
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", "sick.py"]
    assert done.stderr == "holter: sick.py: not changed: No space left on device\n"
    assert "1 finding in 1 of 1 file" in done.stdout
    assert done.returncode == 1


def test_a_fixed_script_keeps_its_mode_and_a_link_stays_a_link(folder: Path) -> None:
    """Another name of the same file would be left with the old text: such a file is told and left alone."""
    (folder / "sick.py").chmod(0o754)
    (folder / "link.py").symlink_to("sick.py")
    mended = check("link.py", "--fix", cwd=folder)
    (folder / "twin.py").write_text(SICK)
    os.link(folder / "twin.py", folder / "other.txt")
    left = check("twin.py", "--fix", cwd=folder)

    assert (mended.returncode, (folder / "link.py").is_symlink()) == (0, True)
    assert 'amp.GradScaler("cuda")' in (folder / "sick.py").read_text()
    assert (folder / "sick.py").stat().st_mode & 0o7777 == 0o754
    assert "2 hard links" in left.stderr
    assert (folder / "twin.py").read_text() == SICK


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("# holter: ignore[HLT303]", 0),
        ("# holter: ignore[deprecated-amp]", 0),
        ("# holter: ignore[HLT3]", 0),
        ("# holter: ignore", 0),
        ("# why not  # holter: ignore[HLT101, HLT303]", 0),
        ("# holter: ignore[HLT101]", 1),
        ("# nothing", 1),
    ],
)
def test_a_comment_on_the_line_keeps_it_quiet(folder: Path, comment: str, found: int) -> None:
    """By code, by the beginning of one, by name, or altogether."""
    (folder / "sick.py").write_text(SICK.rstrip() + f"  {comment}\n")

    assert check(".", cwd=folder).stdout.count("HLT303 ") == found


def test_a_comment_for_the_file_keeps_it_quiet_and_a_text_does_not(folder: Path) -> None:
    """Wherever in the file it stands; a string is no comment."""
    (folder / "sick.py").write_text(SICK + "# holter: ignore-file[HLT303]\n")
    (folder / "text.py").write_text(SICK.rstrip() + '; note = "# holter: ignore"\n')

    assert check("sick.py", cwd=folder).returncode == 0
    assert check("text.py", cwd=folder).returncode == 1


def test_settings_are_those_of_the_nearest_pyproject(folder: Path) -> None:
    """select, ignore, exclude and per-file-ignores; the command line is stronger."""
    (folder / "old").mkdir()
    (folder / "old" / "sick.py").write_text(SICK)
    (folder / "legacy.py").write_text(SICK)
    (folder / "pyproject.toml").write_text(
        '[tool.holter.check]\nselect = ["HLT3"]\nexclude = ["old"]\nper-file-ignores = {"legacy.py" = ["HLT303"]}\n'
    )

    assert check(".", cwd=folder).stdout.count("HLT303 ") == 1
    assert check(".", "--select", "HLT1", cwd=folder).returncode == 0
    assert check(".", "--ignore", "deprecated-amp", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("table", "why"),
    [('selct = ["HLT1"]', "no setting 'selct'"), ("select = 3", "must be a list"), ('select = ["HLT77"]', "no rule is"),
     ("select = [", "not TOML")],
)  # fmt: skip
def test_settings_that_make_no_sense_are_told(folder: Path, table: str, why: str) -> None:
    """Exit code 2 and one line."""
    (folder / "pyproject.toml").write_text(f"[tool.holter.check]\n{table}\n")
    done = check(".", cwd=folder)

    assert done.returncode == 2
    assert why in done.stderr


def test_findings_of_a_notebook_are_by_cell_and_line(folder: Path) -> None:
    """Cells count from 1, as the notebook shows them, whatever kind they are; magics are tolerated."""
    cells = [
        {"cell_type": "markdown", "source": "# Training"},
        {"cell_type": "code", "source": ["%%time\n", "!pip list\n", "import torch\n", "files = !ls\n"]},
        {"cell_type": "code", "source": "%%bash\nfor x in 1; do echo; done"},
        {"cell_type": "code", "source": "\ntorch.cuda.amp.GradScaler()\nplot?"},
    ]
    (folder / "notes.ipynb").write_text(json.dumps({"cells": cells}))
    done = check("notes.ipynb", cwd=folder)

    assert "notes.ipynb:cell 4:2:1: HLT303" in done.stdout
    assert done.stderr == ""


def test_many_files_take_several_processes_and_keep_their_order(tmp_path: Path) -> None:
    """The same findings in the same order as file by file."""
    for number in range(200):
        (tmp_path / f"f{number:03d}.py").write_text(SICK if number % 3 == 0 else "import torch\n")
    found = json.loads(check(".", "--format", "json", cwd=tmp_path).stdout)

    assert found["files"] == 200
    assert [one["file"] for one in found["findings"]] == [f"f{number:03d}.py" for number in range(0, 200, 3)]


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("def (:\n", False),
        ("x = 1\n  y = 2\n", False),
        ("x = " + "-" * 100_000 + "1\n", False),
        ("x = '\\d'; assert (x, 'always true')\n", True),
        ("def f(x):\n    global x\n", True),
        ("return\n", True),
        ("x = 1\n", True),
    ],
    ids=["syntax", "indent", "deep", "warns", "global", "return", "well"],
)
def test_a_file_that_no_rule_is_asked_about_is_parsed_like_any_other(text: str, is_read: bool) -> None:
    """What can't be parsed is told in the same words with and without a framework in it; what can is not."""
    plain, framework = (
        check_source(parse_bytes("a.py", one.encode()), Settings()) for one in (text, text + "# torch.cuda.amp\n")
    )

    assert plain == framework
    assert (plain.unread == []) == is_read


LOOP = """
for batch_{n} in loader:
    loss = model(batch_{n}).sum()
    loss.backward()
    optimizer.step()
    total += loss
    losses.append(loss)
"""


def test_a_long_script_takes_as_long_as_its_parts() -> None:
    """Four times the loops take about four times as long; sixteen would be the square."""
    begin = "import torch\nmodel = torch.nn.Linear(1, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
    begin += "loader, total, losses = [], 0, []\n"

    def took(loops: int) -> float:
        text = begin + "".join(LOOP.format(n=n) for n in range(loops))
        gc.disable()  # a collection goes through all that the tests before this one have left behind
        try:
            begun = time.process_time()
            found = check_source(parse_bytes("train.py", text.encode()), Settings())
            took = time.process_time() - begun
        finally:
            gc.enable()
        assert len(found.problems) >= loops
        return took

    took(10)  # the rules are imported
    few, many = (min(took(loops) for _ in range(3)) for loops in (50, 200))

    assert many < 10 * few, (few, many)
