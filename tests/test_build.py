"""The chart library comes into a build by its hash or not at all, and a build without it is still a build."""

from __future__ import annotations

import importlib
import importlib.util
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook, for a clone that lies elsewhere and has no network."""
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT, module.TARGET, module.SOURCE = tmp_path, tmp_path / "uplot", "http://127.0.0.1:9/"
    monkeypatch.setenv("PATH", str(tmp_path))  # and no npm
    return module


def build(hook: ModuleType) -> tuple[list[str], list[str]]:
    """Run the hook as a build does; gives its warnings and what is to go into the wheel."""
    warned: list[str] = []
    data: dict[str, list[str]] = {"artifacts": []}
    app = SimpleNamespace(display_warning=warned.append)
    hook.ChartLibrary.initialize(SimpleNamespace(app=app), "standard", data)
    return warned, data["artifacts"]


def test_without_a_network_the_build_goes_on_and_says_so(hook: ModuleType) -> None:
    """No file is left half written."""
    warned, artifacts = build(hook)

    assert len(warned) == 1
    assert "built without charts" in warned[0]
    assert artifacts == ["/src/holter/views/web/uplot/*"]
    assert not hook.TARGET.exists()


def test_an_archive_with_another_hash_is_refused(hook: ModuleType) -> None:
    """Whoever changed it, on the way or beside the clone; and all files or none are taken."""
    with tarfile.open(hook.ROOT / hook.ARCHIVE, "w:gz") as archive:
        for name in hook.FILES:
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"other"))

    warned, _artifacts = build(hook)

    assert "not the pinned one" in warned[0]
    assert not hook.TARGET.exists()


def test_what_is_no_archive_is_refused(hook: ModuleType) -> None:
    """A page of a proxy, say."""
    (hook.ROOT / hook.ARCHIVE).write_bytes(b"<html>sign in</html>")

    assert "is no archive" in build(hook)[0][0]


def test_what_lies_there_is_what_was_pinned(hook: ModuleType) -> None:
    """The library that this install serves has the hashes that were pinned, and is small."""
    folder = ROOT / "src" / "holter" / "views" / "web" / "uplot"
    if not folder.exists():
        pytest.skip("built without the chart library: see hatch_build.py")

    assert all(hook.is_right(folder / Path(name).name, name) for name in hook.FILES)
    assert (folder / "uPlot.iife.min.js").stat().st_size < 60_000
    assert "MIT" in (folder / "LICENSE").read_text()


def test_nothing_of_others_lies_in_the_repository() -> None:
    """Scripts and styles in it are ours: the chart library is ignored by git."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    pages = {path.name for path in (ROOT / "src" / "holter" / "views" / "web" / "page").iterdir()}

    assert "src/holter/views/web/uplot/" in ignored
    assert not any("uplot" in name.lower() or name.endswith(".min.js") for name in pages)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the source archive of this tree, built as a release builds them."""
    pytest.importorskip("hatchling")
    if not (ROOT / "src" / "holter" / "views" / "web" / "uplot").exists():
        pytest.skip("built without the chart library: see hatch_build.py")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def release_checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_release", ROOT / "docs" / "check_release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_built_is_small_and_whole(built: Path) -> None:
    """A wheel of at most 1.2 MB with its charts and nothing beside the package; at most four packages to install."""
    assert list(release_checks().faults_of_the_files(built)) == []


def test_a_base_install_is_counted_by_system() -> None:
    """What is for another system, and what an extra brings, does not count."""
    needed = release_checks().needed_by_system(
        ["click>=8", "psutil; sys_platform == 'darwin'", "nvml; sys_platform == 'linux'", "py-spy; extra == 'stacks'"]
    )

    assert {system: len(lines) for system, lines in needed.items()} == {"linux": 2, "darwin": 2}


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_what_is_built_runs_where_nothing_else_is(built: Path, tmp_path: Path, kind: str) -> None:
    """Installed in an empty environment, beside what it needs and no more, from a folder that is not the tree's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean"], check=True)
    packages = next((tmp_path / "clean").glob("lib/python*/site-packages"))
    (file,) = built.glob(kind)
    if kind == "*.tar.gz":  # a source archive is built once more, from what is in it alone
        with tarfile.open(file) as archive:
            archive.extractall(tmp_path, filter="data")
        (source,) = tmp_path.glob("holter-*")
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True)
        (file,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        wheel.extractall(packages)
    needs = {name: Path(importlib.import_module(name).__file__ or "").parent for name in ("click",)}
    for name, folder in needs.items():
        (packages / name).symlink_to(folder)
    python = tmp_path / "clean" / "bin" / "python"
    environ = {"HOLTER_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    words = [python, "-m", "holter", "run", "--", python, "-c", "{}['x']"]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, check=False)

    assert done.returncode == 1
    assert "user-error, established" in done.stderr.decode()


def test_a_tag_that_does_not_fit_is_no_release(tmp_path: Path) -> None:
    """Another number in one of the places, or a changelog without a date."""
    check = release_checks().faults_of_the_tree
    (tmp_path / "src" / "holter").mkdir(parents=True)
    for version, inside, heading, faults in (
        ("1.2.3", "1.2.3", "1.2.3 (2026-11-20)", 0),
        ("1.2.3", "1.2.2", "1.2.3 (2026-11-20)", 1),
        ("1.2.3", "1.2.3", "1.2.3 (not released)", 1),
        ("1.2.4", "1.2.3", "1.2.3 (2026-11-20)", 3),
    ):
        (tmp_path / "pyproject.toml").write_text(f'version = "{version}"\n')
        (tmp_path / "src" / "holter" / "__init__.py").write_text(f'__version__ = "{inside}"\n')
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")

        assert len(list(check("v1.2.3", tmp_path))) == faults, (version, inside, heading)
