"""The chart library comes into a build by its hash or not at all, and a build without it is still a build."""

from __future__ import annotations

import importlib.util
import io
import tarfile
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
