"""A cache can only save time: what is found is the same with it, without it, and whatever lies in its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holter.check import cache as cache_module
from holter.check import workers
from holter.check.cache import cache_folder
from holter.check.problem import Checked
from holter.check.settings import Settings
from holter.check.workers import PAYS, check_files

FIXTURES = Path(__file__).with_name("fixtures")
SICK = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
WELL = "import torch\nscaler = torch.amp.GradScaler('cuda')\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Every fixture of the rules, and what can't be read: a script, a cell of a notebook, a text that is no Python."""
    tree = tmp_path / "tree"
    shutil.copytree(FIXTURES, tree)
    (tree / "broken.py").write_text("import torch\ndef (:\n")
    (tree / "plain.py").write_text("def (:\n")  # no framework in it: only the parser says so
    (tree / "latin.py").write_bytes(b"import torch\nname = '\xff'\n")
    (tree / "test_sick.py").write_text("import torch\nmodel.to('cpu')\n")
    (tree / "link.py").symlink_to("test_sick.py")
    cells = [{"cell_type": "code", "source": one} for one in ("def (:", SICK)]
    (tree / "notes.ipynb").write_text(json.dumps({"cells": cells}))
    (tree / "pyproject.toml").write_text('[tool.holter.check]\nper-file-ignores = {"graph-kept/*" = ["HLT103"]}\n')
    return tree


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """So many scripts that a cache is kept, the first with something to find, all written an hour ago."""
    later(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for number in range(PAYS):
        (tmp_path / f"f{number:03d}.py").write_text(SICK if number == 0 else WELL)
    return [f"f{number:03d}.py" for number in range(PAYS)]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float = 3600) -> None:
    now = cache_module.time.time
    monkeypatch.setattr(cache_module.time, "time", lambda: now() + seconds)


def check(files: list[str], settings: Settings | None = None) -> Checked:
    return check_files(files, settings or Settings(), cache_in=cache_folder())


def none_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(task: workers.Task) -> workers.Done:
        raise AssertionError(f"{task[0]} is read")

    monkeypatch.setattr(workers, "_each", lambda tasks: (read(one) for one in tasks))


def said(tree: Path, *options: str, cores: int | None = None) -> tuple[int, str, str]:
    def on_cores() -> None:
        if cores is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])

    done = subprocess.run(
        [sys.executable, "-m", "holter", "check", *options, "."],
        cwd=tree, capture_output=True, text=True, check=False, preexec_fn=on_cores,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_the_same_is_said_with_and_without_a_cache_and_workers(tree: Path, form: str) -> None:
    """Byte for byte, in the same order, on both streams: by one process, by several, when kept, and when known."""
    plain = said(tree, "--format", form, "--no-cache", cores=1)

    assert plain[1].count("HLT") > 60
    assert "plain.py" in plain[2]
    for options in (["--no-cache"], [], [], []):
        assert said(tree, "--format", form, *options) == plain


def test_a_fix_is_the_same_with_a_cache(tree: Path, tmp_path: Path) -> None:
    """What is known of a file does not keep it from being mended."""
    said(tree)
    shutil.copytree(tree, tmp_path / "other", symlinks=True)

    assert said(tree, "--fix") == said(tmp_path / "other", "--fix", "--no-cache")
    assert [path.read_bytes() for path in sorted(tree.rglob("*.py"))] == [
        path.read_bytes() for path in sorted((tmp_path / "other").rglob("*.py"))
    ]


def test_what_did_not_change_is_not_read_again(many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second check gives the same findings and opens no script."""
    first = check(many)
    none_is_read(monkeypatch)

    assert len(first.problems) == 1
    assert check(many) == first


def test_what_changed_is_read_again(many: list[str]) -> None:
    """Also where its size and its time of change were put back to what they were."""
    check(many)
    about = Path(many[1]).stat()
    Path(many[1]).write_text(SICK.ljust(len(WELL)))
    os.utime(many[1], ns=(about.st_atime_ns, about.st_mtime_ns))

    assert [one.file for one in check(many).problems] == [many[0], many[1]]


def test_what_was_written_this_moment_is_compared_by_its_content(
    many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system can't tell two changes of one moment apart: until it can, the file is read."""
    later(monkeypatch, -3600)
    first = check(many)
    done: list[workers.Done] = []
    monkeypatch.setattr(workers, "_each", lambda tasks: (done.append(workers._check(one)) or done[-1] for one in tasks))

    assert check(many) == first
    assert len(done) == len(many)
    assert {found for _, found in done} == {None}


def test_other_settings_and_another_folder_know_nothing_of_it(many: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ignored here is not ignored there."""
    check(many)
    ignored = check(many, Settings(ignore=frozenset({"HLT303"})))
    Path("inner").mkdir()
    monkeypatch.chdir("inner")
    elsewhere = check([f"../{one}" for one in many])

    assert (len(ignored.problems), len(elsewhere.problems)) == (0, 1)
    assert elsewhere.problems[0].file == f"../{many[0]}"


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.write_bytes(b""),
        lambda kept: kept.write_bytes(kept.read_bytes()[:-100]),
        lambda kept: kept.write_bytes(kept.read_bytes().replace(b"null", b"[[] ", 1)),
        lambda kept: kept.write_bytes(os.urandom(5000)),
        lambda kept: (kept.unlink(), kept.mkdir()),
        lambda kept: (kept.unlink(), kept.symlink_to("/dev/zero")),
        lambda kept: (kept.unlink(), os.mkfifo(kept)),
    ],
    ids=["empty", "cut", "altered", "noise", "folder", "device", "pipe"],
)
def test_a_damaged_cache_is_as_good_as_none(
    many: list[str], damage: Callable[[Path], object], capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody is told, and all is read again."""
    first = check(many)
    folder = cache_folder()
    assert folder is not None
    for kept in folder.iterdir():
        damage(kept)

    assert check(many) == first
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_others_can_write_to_is_left_alone(many: list[str], cache_home: Path) -> None:
    """Neither read nor written; so is a link to one, and a path that is no folder. Its healthy twin is used."""
    folder = cache_home / "holter" / "check"
    check(many)
    assert len(list(folder.iterdir())) == 1

    folder.chmod(0o770)
    assert cache_folder() is None
    folder.rename(cache_home / "elsewhere")
    folder.symlink_to(cache_home / "elsewhere")
    (cache_home / "elsewhere").chmod(0o700)
    assert cache_folder() is None
    folder.unlink()
    folder.write_text("")
    assert cache_folder() is None
    assert len(check(many).problems) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_left_alone(many: list[str], cache_home: Path) -> None:
    """Whoever owns it could say what was found."""
    check(many)
    os.chown(cache_home / "holter" / "check", 12345, 12345)

    assert cache_folder() is None


def test_a_cache_that_does_not_fit_on_the_disk_is_not_kept(
    many: list[str], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The findings come all the same, and nothing half-written stays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    folder = cache_folder()
    subprocess.run(["dd", "if=/dev/zero", f"of={small_disk / 'filler'}"], capture_output=True, check=False)

    assert folder is not None
    assert len(check(many).problems) == 1
    assert list(folder.iterdir()) == []


def test_several_checks_at_once_leave_one_sound_cache(tree: Path, cache_home: Path) -> None:
    """Each says the same, and the next one finds all that it needs."""
    alone = said(tree, "--no-cache")
    command = [sys.executable, "-m", "holter", "check", "."]
    running = [subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    outputs = [one.communicate() for one in running]

    assert {(out.decode(), err.decode()) for out, err in outputs} == {alone[1:]}
    assert len(list((cache_home / "holter" / "check").iterdir())) == 1
    assert said(tree) == alone


def test_caches_are_few_and_a_few_files_have_none(many: list[str], cache_home: Path) -> None:
    """Sixteen at most, the oldest go; below the number from which it pays, none is made."""
    check(many[: PAYS - 1])
    assert not list((cache_home / "holter" / "check").iterdir())
    for number in range(20):
        check(many, Settings(ignore=frozenset({f"HLT1{number:02d}"})))

    assert len(list((cache_home / "holter" / "check").iterdir())) == 16
