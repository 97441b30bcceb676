"""Which probes a machine gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holter.probes
from holter.errors import NoData
from holter.probes import Declined, modules_for, probes_here
from holter.probes.probe import Tree

FOLDER = Path(holter.probes.__file__).parent


def run(code: str) -> str:
    source = str(Path(holter.__path__[0]).parent)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{code}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.mark.parametrize(("platform", "own", "other"), [("linux", "_linux", "_macos"), ("darwin", "_macos", "_linux")])
def test_modules_by_suffix(platform, own, other):
    """A platform gets every file with its suffix and every file with none, and no other."""
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}

    assert {name for name in files if not name.endswith(other)} == set(modules_for(platform))
    assert any(name.endswith(own) for name in modules_for(platform))
    assert "nvidia" in set(modules_for(platform))


def test_unknown_platform():
    """A system that is neither gets only what belongs to none."""
    assert not [name for name in modules_for("win32") if name.endswith(("_linux", "_macos"))]


@pytest.mark.skipif(sys.platform != "linux", reason="the list is Linux's")
def test_every_key_of_the_record():
    """Linux has a probe for every key that the record names, each once and none declined."""
    found = probes_here()

    assert sorted(
        [
            "processes",
            "proportional",
            "threads",
            "cgroup",
            "memory",
            "neighbours",
            "vm",
            "pressure",
            "load",
            "disk",
            "network",
            "shm",
            "rlimits",
            "nvidia",
        ]
    ) == sorted(probe.name for probe in found)
    assert not [probe for probe in found if isinstance(probe, Declined)]
    assert {"processes", "cgroup", "memory"} == {probe.name for probe in found if probe.urgent}


@pytest.mark.skipif(sys.platform != "linux", reason="the promise is Linux's")
def test_nothing_heavy_is_imported():
    """Setting up the probes imports neither psutil nor the NVIDIA binding."""
    heavy = ("psutil", "pynvml", "numpy", "asyncio", "multiprocessing", "subprocess")
    code = f"from holter.probes import probes_here; probes_here(); print([m for m in {heavy!r} if m in sys.modules])"

    assert run(code) == "[]"


def test_importing_the_package_imports_no_probe():
    """The package alone costs next to nothing."""
    code = "import holter.probes; print([m for m in sys.modules if m.startswith('holter.probes.')])"

    assert run(code) == "['holter.probes.probe']"


def test_a_probe_that_cannot_be_set_up(monkeypatch):
    """A probe that fails to set up says why at its reading, and the others are there."""
    if sys.platform != "linux":
        pytest.skip("uses a Linux probe")
    from holter.probes import load_linux

    def fail() -> object:
        raise RuntimeError("no luck")

    monkeypatch.setattr(load_linux, "PROBES", [fail])

    found = {probe.name: probe for probe in probes_here()}

    assert "memory" in found
    with pytest.raises(NoData, match="no luck"):
        found["load_linux"].read(Tree(1, [1]))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_every_probe_survives_a_run_that_is_gone():
    """No probe raises anything but NoData for a tree whose processes have all ended."""
    gone = subprocess.Popen(["true"])
    gone.wait()

    for probe in probes_here():
        for _ in range(2):
            try:
                reading = probe.read(Tree(gone.pid, [gone.pid]))
            except NoData:
                continue
            assert isinstance(reading, dict)
