"""`holter env`: the figures are this machine's, what can't be read says why, and nothing of the user is shown."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holter.errors import NoData
from holter.machine import look as machine
from holter.machine import visible as seen
from holter.recorder.stacks import take
from holter.views.machine import write_machine
from tests.conftest import Holter
from tests.score.control_group import ControlGroup, make_group, remove_group
from tests.score.errors import CannotBeMade

GB = 10**9


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with no package at all."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python")


def table(holter: Holter, python: str, **options: Any) -> dict[str, Any]:
    done = holter("env", "--json", "--python", python, **options)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(found: dict[str, Any], width: int = 100) -> str:
    stream = io.StringIO()
    write_machine(found, stream, width=width)
    return stream.getvalue()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_figures_are_this_machines(holter: Holter, bare_python: str) -> None:
    """RAM, cores, the disk of the working folder, and a limit that was set for this one process."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))

    found = table(holter, bare_python, preexec_fn=limit)
    disk = os.statvfs(holter.folder)

    assert found["memory"]["total"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found["memory"]["available"] < found["memory"]["total"]
    assert (found["cpu"]["cores"], found["cpu"]["affinity"]) == (os.cpu_count(), len(os.sched_getaffinity(0)))
    assert found["limits"]["open_files"] == 99
    assert found["disk"]["working"]["total"] == disk.f_blocks * disk.f_frsize
    assert found["python"]["environment"] == "virtual"
    assert found["frameworks"] == found["packages"] == {}


@pytest.mark.skipif(sys.platform != "linux", reason="taskset is Linux's")
def test_cores_that_a_process_is_bound_to_are_told(holter: Holter, bare_python: str) -> None:
    """Not those that the machine has."""
    one = {min(os.sched_getaffinity(0))}
    found = table(holter, bare_python, preexec_fn=lambda: os.sched_setaffinity(0, one))

    assert (found["cpu"]["affinity"], found["cpu"]["usable"]) == (1, 1.0)
    if (os.cpu_count() or 1) > 1:
        assert "1 of them may be used: it is bound to 1 of them" in shown(found)


@pytest.fixture
def container() -> Iterator[ControlGroup]:
    """A real control group with 2 GB, one and a half cores and 50 tasks."""
    if os.geteuid() != 0:
        pytest.skip("making a control group needs root")
    files = {
        "memory": [("memory.limit_in_bytes", str(2 * GB)), ("memory.max", str(2 * GB))],
        "cpu": [("cpu.cfs_quota_us", "150000"), ("cpu.max", "150000 100000")],
        "pids": [("pids.max", "50")],
    }
    try:
        group = make_group(f"holter-test-env-{os.getpid()}", files)
    except CannotBeMade as error:
        pytest.skip(str(error))
    yield group
    remove_group(group)


def test_a_containers_limits_are_told_and_what_is_left_of_them(
    holter: Holter, bare_python: str, container: ControlGroup
) -> None:
    """Memory, cores and tasks; 300 MB that another process holds there are not left."""
    holds = "import time; x = b'x' * 300_000_000; print(flush=True); time.sleep(100)"

    def join() -> None:
        for folder in container.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    holder = subprocess.Popen([sys.executable, "-c", holds], preexec_fn=join, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        found = table(holter, bare_python, preexec_fn=join)
    finally:
        holder.kill()
        holder.communicate()
    memory = found["memory"]["container"]

    assert abs(memory["limit"] - 2 * GB) < 4096
    assert 1 * GB < memory["left"] < 1.7 * GB
    assert (found["cpu"]["quota"], found["limits"]["tasks"]["limit"]) == (1.5, 50)
    assert found["limits"]["tasks"]["now"] >= 2
    assert "the container's limit: 2.0 GB, 1." in shown(found)


def test_without_a_container_no_limit_is_made_up() -> None:
    """A group that allows more than the RAM is none."""
    found = machine._memory({"memory": {"total": 1, "available": 1}, "shm": NoData("x"), "cgroup": NoData("x")})

    assert found["container"] is None


MARKER = "marker-7f3a"


def test_nothing_of_the_user_is_shown(holter: Holter, bare_python: str, tmp_path: Path) -> None:
    """No variable beyond the short list, no name of a user, no home, no name of the machine."""
    home = tmp_path / "home" / MARKER
    home.mkdir(parents=True)
    (home / "python").symlink_to(bare_python)
    environ = {
        "HOME": str(home), "USER": MARKER, "LOGNAME": MARKER, "HF_TOKEN": MARKER, "MY_SETTING": MARKER,
        "HOLTER_HOME": str(home / "records"), "TMPDIR": str(home), "OMP_NUM_THREADS": "3",
    }  # fmt: skip
    ways = [holter("env", "--python", str(home / "python"), *as_json, env=environ) for as_json in ([], ["--json"])]

    for done in ways:
        assert done.returncode == 0
        assert MARKER.encode() not in done.stdout + done.stderr
        assert os.uname().nodename not in done.stdout.decode().split()
        assert b"OMP_NUM_THREADS" in done.stdout


def test_a_users_name_is_in_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes also lie on other disks; a word that only begins like the name is another word."""
    monkeypatch.setenv("HOME", "/data/people/ada")
    monkeypatch.setenv("USER", "ada")
    said = {
        "a": ["/data/people/ada/venv/bin/python"],
        "b": "ImportError: /scratch/ada/x.so: gone",
        "c": "/opt/adam",
        "d": "ada",
    }

    assert machine._without_user(said) == {
        "a": ["~/venv/bin/python"], "b": "ImportError: /scratch/***/x.so: gone", "c": "/opt/adam", "d": "ada",
    }  # fmt: skip


def test_what_could_not_be_read_says_why_and_is_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every probe failing, and no interpreter."""

    def fails(*_: object) -> None:
        raise OSError("the sensor is gone")

    for probe in machine.probes_here():
        monkeypatch.setattr(type(probe), "read", fails)
    monkeypatch.setenv("PATH", "")
    text = shown(machine.look())

    assert text.count("no data, because the probe failed: OSError: the sensor is gone") >= 6
    assert "Python       no data, because there is no `python` on PATH" in text
    assert "Frameworks" not in text
    assert not any(f" {zero} " in text for zero in ("0", "0 bytes", "0.0"))


def test_a_wrong_python_is_told_at_once(holter: Holter) -> None:
    """Exit code 2."""
    done = holter("env", "--python", "/no/such/python")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"/no/such/python is no program" in done.stderr


# --- GPUs ---------------------------------------------------------------------------------------------------
# Readings are constructed after the probe's own test of NVML; a Mac's after Apple's names.


def test_a_gpu_is_told_with_its_memory_and_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others hold of it is not free."""
    reading = {"list": [{"index": 0, "name": "Tesla", "total": 80 * GB, "used": 5 * GB}], "cuda": "12.8"}
    monkeypatch.setattr(machine, "driver_version", lambda: "570.86.15")
    found = machine._gpus(machine.here("system", "machine"), {"nvidia": reading})

    assert found["list"] == [{"name": "Tesla", "total": 80 * GB, "free": 75 * GB}]
    assert (found["driver"], found["cuda"]) == ("570.86.15", "12.8")


def test_a_gpu_that_does_not_tell_its_memory_is_no_gpu_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that share the machine's memory."""
    monkeypatch.setattr(machine, "driver_version", lambda: "580.1")
    found = machine._gpus(machine.here("system", "machine"), {"nvidia": {"list": [{"name": "Orin"}], "cuda": ""}})
    text = shown({**EMPTY, "gpus": found})

    assert "Orin: no data on its memory, because the driver does not tell it" in text


def test_the_gpu_of_a_mac_shares_the_ram() -> None:
    """Nobody is shown a figure that is the RAM's."""
    text = shown({**EMPTY, "gpus": {"list": [{"name": "Apple M2", "shared": True}]}})

    assert "GPU          Apple M2: it shares the RAM with the CPU" in text


# --- what Holter sees -----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_what_holter_sees_is_tried() -> None:
    """Each of the six is a yes, or a no with its reason."""
    rows = seen.visible(machine.read_probes())

    assert len(rows) == 6
    assert all(row["seen"] is not bool(row["because"]) for row in rows)
    assert next(row for row in rows if "PSS" in row["what"])["seen"]


def test_without_py_spy_its_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started for it that stays."""
    monkeypatch.setattr(take.shutil, "which", lambda *_words, **_more: None)

    assert str(seen._stacks()) == "py-spy is not installed (pip install 'holter[stacks]')"


def test_where_py_spy_may_not_attach_its_line_says_what_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded: the words of py-spy 0.4.3 for a process that is another user's."""
    refused = (
        "py-spy: Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"
    )
    monkeypatch.setattr(take, "from_py_spy", lambda _pid: ([], refused))

    assert str(seen._stacks()).startswith(f"{refused} (")
    assert "SYS_PTRACE" in str(seen._stacks()) or "sudo" in str(seen._stacks())


def test_a_group_that_counts_no_kills_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root group of version 2 has no such file."""
    monkeypatch.setattr(seen, "_stacks", lambda: None)
    readings = dict.fromkeys(machine._PROBES, NoData("none here")) | {"cgroup": {"version": 2, "path": "/"}}
    row = seen.visible(readings)[0]

    assert (row["seen"], row["because"]) == (False, seen._OF_THE_MACHINE)


EMPTY: dict[str, Any] = {
    "holter": "0", "system": {"name": "x", "machine": "x", "container": ""},
    "cpu": {"model": "x", "cores": 2, "affinity": 2, "quota": None, "usable": 2.0},
    "memory": {
        "total": 1, "available": 1, "swap_total": 0, "swap_free": 0, "container": None, "shm": {"total": 1, "free": 1}
    },
    "limits": {"open_files": None, "processes": 1, "address_space": None, "tasks": {"limit": None, "now": None}},
    "disk": {}, "gpus": {"no_data": "x"},
    "python": {
        "path": "x", "version": "x", "implementation": "x", "machine": "x", "bits": 64, "translated": False,
        "environment": "",
    },
    "packages": {}, "clashes": [], "frameworks": {},
    "visible": [], "variables": {},
}  # fmt: skip


def test_text_from_elsewhere_cannot_write_to_the_terminal() -> None:
    """A package's version and a framework's error are anyone's words."""
    failed = {"torch": {"no_data": "ImportError: \x1b[2J\u202egone\n"}}
    text = shown(
        {**EMPTY, "packages": {"numpy": "2\x1b]0;t\x07"}, "frameworks": failed, "variables": {"RANK": "\x9b1"}}
    )

    assert not set("\x1b\x07\x9b\u202e") & set(text)


def test_the_page_keeps_its_width() -> None:
    """Also with a word that is wider than the page."""
    text = shown({**EMPTY, "packages": {"n" * 200: "1"}}, width=60)

    assert max(map(len, text.splitlines())) <= 60


def test_it_takes_about_a_second_without_frameworks(holter: Holter, bare_python: str) -> None:
    """Somebody waits for it."""
    began = time.monotonic()
    table(holter, bare_python)

    assert time.monotonic() - began < 15
