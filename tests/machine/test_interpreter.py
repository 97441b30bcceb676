"""The interpreter that would run the training is asked from outside: no framework can hold up or end `holter env`.

The frameworks here are small modules under the real names, each with one fault; the last tests ask the real ones.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holter.errors import NoData
from holter.facts import host_memory
from holter.machine import interpreter
from tests.agent.test_interpreters import interpreter as python_of
from tests.needs import needs

NO_GPU = {"there": "", "driver": "", "translated": False, "apple": False}
TESLA = {**NO_GPU, "there": "Tesla", "driver": "12.8"}
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package on PYTHONPATH, before the real one."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def put(name: str, version: str, text: str = "", needs: tuple[str, ...] = ()) -> None:
        about = site / f"{name}-{version}.dist-info"
        about.mkdir()
        rows = [
            "Metadata-Version: 2.1",
            f"Name: {name}",
            f"Version: {version}",
            *(f"Requires-Dist: {n}" for n in needs),
        ]
        (about / "METADATA").write_text("\n".join(rows) + "\n")
        (site / f"{name}.py").write_text(text)

    return put


def torch_with(cuda: str | None, works: bool = False, extra: str = "") -> str:
    """A module with what `asked.py` looks at."""
    return f"""
import types
__version__ = "9.9"
version = types.SimpleNamespace(cuda={cuda!r}, hip=None)
cuda = types.SimpleNamespace(is_available=lambda: {works}, device_count=lambda: 2)
backends = types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: False, is_built=lambda: False))
{extra}
"""


def asked(gpu: dict[str, Any], name: str = "torch") -> dict[str, Any]:
    return interpreter.framework(sys.executable, name, gpu)


# --- packages -------------------------------------------------------------------------------------------------


def test_versions_are_told_without_importing_anything(install: Install) -> None:
    """A torch that ends the process at its import is told with its version."""
    install("torch", "9.9", "import os; os.abort()")

    assert interpreter.packages(sys.executable)["packages"]["torch"] == "9.9"


def test_requirements_that_are_not_met_are_told(install: Install) -> None:
    """Another version, and a package that is not there."""
    install("numpy", "2.1.0")
    install("torch", "9.9", needs=("numpy<2,>=1.2", "nothing-of-this-name==1.0"))
    found = interpreter.packages(sys.executable)

    assert found["clashes_unknown"] == ""
    assert [one for one in found["clashes"] if one["package"] == "torch"] == [
        {"package": "torch", "version": "9.9", "needs": "numpy<2,>=1.2", "found": "2.1.0"},
        {"package": "torch", "version": "9.9", "needs": "nothing-of-this-name==1.0", "found": ""},
    ]


def test_requirements_of_extras_and_other_systems_are_no_clash(install: Install) -> None:
    """Nor what is met, also by a release candidate, nor a line that nobody can read."""
    install("numpy", "2.1.0rc1")
    of_others = ("numpy<1; extra == 'old'", "numpy<1; sys_platform == 'win32'", "numpy<1; python_version < '3'")
    install("torch", "9.9", needs=(*of_others, "numpy>=2", "???"))

    assert [one for one in interpreter.packages(sys.executable)["clashes"] if one["package"] == "torch"] == []


def test_an_interpreter_without_packaging_says_that_clashes_are_not_known(tmp_path: Path) -> None:
    """It is no word on whether there are some."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    found = interpreter.packages(str(tmp_path / "bare" / "bin" / "python"))

    assert (found["packages"], found["clashes"]) == ({}, [])
    assert "pip install packaging" in found["clashes_unknown"]


def test_files_of_the_working_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `json.py` in a project that was downloaded is not executed."""
    (tmp_path / "json.py").write_text("open('executed', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)

    assert interpreter.packages(sys.executable)["version"]
    assert not (tmp_path / "executed").exists()


def test_the_agent_of_a_run_stays_out(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """`holter env` may be called from a script that runs under Holter."""
    monkeypatch.setenv("HOLTER_AGENT_DIR", "/tmp")
    install("torch", "9.9", torch_with(None) + "import os; __version__ = str('HOLTER_AGENT_DIR' in os.environ)")

    assert asked(NO_GPU)["version"] == "False"


def test_what_is_no_python_says_so() -> None:
    """With its own last words."""
    with pytest.raises(NoData, match="it did not answer"):
        interpreter.packages("/bin/ls")


@pytest.mark.parametrize("version", ["3.9", "3.12", "3.13", "3.14"])
def test_any_python_that_trains_can_be_asked(version: str) -> None:
    """Whatever Python Holter itself runs on."""
    found = interpreter.packages(python_of(version))

    assert found["version"].startswith(f"{version}.")


@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_an_older_python_is_told_as_such(version: str) -> None:
    """No stack trace, and no syntax error of ours."""
    with pytest.raises(NoData, match=r"it is older than Python 3\.9$"):
        interpreter.packages(python_of(version))


# --- why a GPU is not used --------------------------------------------------------------------------------------


def test_a_build_without_gpus_is_told_with_the_command_that_changes_it(install: Install) -> None:
    """The same words as `cpu.gpu-unused` has after the run."""
    install("torch", "9.9", torch_with(None))
    found = asked(TESLA)

    assert found["because"] == "PyTorch 9.9 is built without GPUs"
    assert found["do"] == "pip install --force-reinstall torch"


def test_on_a_machine_without_a_gpu_no_command_is_advised(install: Install) -> None:
    """Another build would change nothing."""
    install("torch", "9.9", torch_with(None))
    found = asked(NO_GPU)

    assert (found["because"], found["do"]) == ("PyTorch 9.9 is built without GPUs; no GPU is seen here", "")


def test_a_variable_that_hides_every_gpu_is_told(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the command that unsets it."""
    install("torch", "9.9", torch_with("12.8"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    found = asked(TESLA)

    assert found["because"] == "CUDA_VISIBLE_DEVICES is set to '-1', which hides every GPU"
    assert found["do"] == "unset CUDA_VISIBLE_DEVICES"


def test_a_driver_that_is_too_old_is_told(install: Install) -> None:
    """The build is for CUDA 13, the driver runs 12.8."""
    install("torch", "9.9", torch_with("13.0"))
    found = asked(TESLA)

    assert found["because"] == "PyTorch is built for CUDA 13.0, and the driver runs CUDA 12.8 at most"
    assert found["do"].startswith("nvidia-smi")


def test_a_python_made_for_intel_is_told(install: Install) -> None:
    """On a Mac with a chip of Apple's; constructed."""
    install("torch", "9.9", torch_with(None))

    assert "made for Intel" in asked({**NO_GPU, "there": "Apple M2", "translated": True, "apple": True})["because"]


def test_where_no_reason_is_known_the_frameworks_own_words_are_told(install: Install) -> None:
    """PyTorch warns, TensorFlow writes to its log; secrets in it are masked."""
    warns = "import warnings\ncuda.is_available = lambda: warnings.warn('CUDA initialization: unknown error') or False"
    install("torch", "9.9", torch_with("12.8", extra=warns))
    tensorflow = """
import sys, types
__version__ = "9.9"
config = types.SimpleNamespace(list_physical_devices=lambda kind: [])
sysconfig = types.SimpleNamespace(get_build_info=lambda: {"is_cuda_build": True, "cuda_version": "12.5"})
print("I rebuild with flags\\nW Cannot dlopen some GPU libraries. password=hunter2x\\nbye", file=sys.stderr)
"""
    install("tensorflow", "9.9", tensorflow)

    assert asked(TESLA)["because"] == "it says: CUDA initialization: unknown error"
    assert asked(TESLA, "tensorflow")["because"] == "it says: W Cannot dlopen some GPU libraries. password=***"


def test_a_framework_that_uses_the_gpu_has_nothing_to_explain(install: Install) -> None:
    """Two GPUs, and what it prints on stdout is not taken for its answer."""
    install("torch", "9.9", torch_with("12.8", works=True, extra="print('hello')"))

    assert asked(TESLA) == {"version": "9.9", "built_for": "cuda 12.8", "device": "cuda", "count": 2}


# --- what can go wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise ImportError('libcudnn.so.9: cannot open shared object file')", "ImportError: libcudnn.so.9"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "instructions that this CPU does not have"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL: out of memory"),
        ("import os; os._exit(3)", "it did not answer: exit code 3"),
        ("import sys; print('bad luck', file=sys.stderr); sys.exit(1)", "SystemExit: 1"),
        ("x = 1", "AttributeError"),
    ],
    ids=["does not load", "SIGILL", "SIGKILL", "exits", "gives up", "is another torch"],
)
def test_a_framework_that_cannot_be_imported_is_no_data(install: Install, text: str, says: str) -> None:
    """With the reason."""
    install("torch", "9.9", text)

    with pytest.raises(NoData, match=says):
        asked(NO_GPU)


def test_a_framework_that_does_not_come_back_is_ended(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With what it had started."""
    monkeypatch.setattr(interpreter, "_LIMIT", 3.0)
    starts = "import subprocess, time\nchild = subprocess.Popen(['sleep', '300'])\n"
    install("torch", "9.9", f"{starts}open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\ntime.sleep(300)")
    began = time.monotonic()

    with pytest.raises(NoData, match="no answer within 3 s"):
        asked(NO_GPU)
    assert time.monotonic() - began < 30
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    while time.monotonic() - began < 30 and stat.exists() and stat.read_text().split()[2] != "Z":
        time.sleep(0.05)  # a signal that was sent may still be on its way
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_a_framework_is_not_imported_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    """Another training may be on: it must not be killed for our curiosity."""
    install("torch", "9.9", "raise SystemExit('imported')")
    monkeypatch.setattr(host_memory, "left", lambda: 400_000_000)

    with pytest.raises(NoData, match=r"400 MB of memory are left, and importing it may take 1.5 GB"):
        asked(NO_GPU)


@pytest.mark.torch
def test_the_real_pytorch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is the installed one's; on a build for the CPU it says so."""
    needs("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    version = interpreter.packages(sys.executable)["packages"]["torch"]
    found = asked(NO_GPU)

    assert found["version"] == version
    if found["built_for"] == "cpu":
        assert found["because"].startswith(f"PyTorch {version} is built without GPUs")


@pytest.mark.tensorflow
def test_the_real_tensorflow_is_asked() -> None:
    """The list of its devices, and what it was built for."""
    needs("tensorflow")
    found = asked(NO_GPU, "tensorflow")

    assert found["version"].split(".")[0].isdecimal()
    assert (found["device"] == "gpu") == (found["count"] > 0)
