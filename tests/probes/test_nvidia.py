"""NVIDIA GPUs.

The driver stands in as an object with the calls of NVML that the probe makes; its answers are constructed. The last
test reads a real GPU where there is one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import types

import pytest

from holter.errors import NoData
from holter.probes import nvidia
from holter.probes.nvidia import Nvidia, driver_version, load_nvml, throttle_words
from holter.probes.probe import Tree

GB = 10**9


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class Driver:
    """One GPU; `broken` names calls that fail."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.processes = [(10, 3 * GB), (999, 1 * GB)]

    def __getattr__(self, name: str):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answers = {
            "nvmlSystemGetCudaDriverVersion_v2": 12080,
            "nvmlSystemGetDriverVersion": b"570.86.15",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "gpu0",
            "nvmlDeviceGetName": b"Tesla",
            "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=80 * GB, used=5 * GB),
            "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=97),
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x4 | 0x40,
            "nvmlDeviceGetTotalEccErrors": 2,
            "nvmlDeviceGetComputeRunningProcesses": [
                types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes
            ],
        }

        def call(*_: object) -> object:
            self.asked.append(name)
            if name in self.broken:
                raise self.broken[name]
            return answers[name]

        return call


def probe(driver: Driver, **more) -> Nvidia:
    return Nvidia(lambda: driver, patience=30, **more)


def test_fields_of_the_record():
    """Every field that this GPU has is there."""
    assert probe(Driver()).read(Tree(10, [10, 11])) == {
        "cuda": "12.8",
        "list": [
            {
                "index": 0,
                "name": "Tesla",
                "total": 80 * GB,
                "used": 5 * GB,
                "tree": 3 * GB,
                "util": 97,
                "throttle": ["power-cap", "hardware-thermal"],
                "ecc_uncorrected": 2,
                "processes": [{"pid": 10, "used": 3 * GB}, {"pid": 999, "used": 1 * GB}],
            }
        ],
    }


def test_the_drivers_version():
    """Asked for once, by `holter env`; a driver that does not tell it is no data."""
    silent = Driver()
    silent.broken["nvmlSystemGetDriverVersion"] = NVMLError(999)

    assert driver_version(Driver) == "570.86.15"
    with pytest.raises(NoData, match="does not tell its version"):
        driver_version(lambda: silent)


def test_an_idle_gpu_is_not_throttled():
    """Idle clocks are no throttling, and unknown bits are no words."""
    assert throttle_words(0x1) == []
    assert throttle_words(1 << 40) == []


def test_each_field_by_itself():
    """A call that fails costs its own field; it is asked again unless the GPU does not support it."""
    driver = Driver()
    driver.broken["nvmlDeviceGetMemoryInfo"] = NVMLError(999)
    driver.broken["nvmlDeviceGetCurrentClocksThrottleReasons"] = NVMLError(3)
    reader = probe(driver)

    rows = [reader.read(Tree(10, [10]))["list"][0] for _ in range(2)]

    assert "total" not in rows[1]
    assert rows[1]["util"] == 97
    assert driver.asked.count("nvmlDeviceGetMemoryInfo") == 2
    assert driver.asked.count("nvmlDeviceGetCurrentClocksThrottleReasons") == 1
    assert driver.asked.count("nvmlDeviceGetName") == 1


def test_numbers_of_another_namespace(tmp_path):
    """In a container the driver's process numbers are not ours: the run's share is left out, not zero."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532999]")

    row = probe(Driver(), proc=str(tmp_path)).read(Tree(55, [55]))["list"][0]

    assert "tree" not in row
    assert row["used"] == 5 * GB


def test_a_run_without_gpu_memory(tmp_path):
    """Where the numbers are ours, a run that holds nothing holds zero."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")

    assert probe(Driver(), proc=str(tmp_path)).read(Tree(55, [55]))["list"][0]["tree"] == 0


def test_memory_by_process_that_is_not_known():
    """Where the driver knows the process but not its memory, no share is given."""
    driver = Driver()
    driver.processes = [(10, None)]

    row = probe(driver).read(Tree(10, [10]))["list"][0]

    assert row["processes"] == [{"pid": 10}]
    assert "tree" not in row


def test_a_slow_driver_is_asked_more_rarely():
    """A reading of 20 ms makes the next come after 4 s."""
    ticks = iter([0.0, 0.02])
    reader = probe(Driver(), clock=lambda: next(ticks))

    reader.read(Tree(10, [10]))

    assert reader.every == pytest.approx(4)


def test_no_driver_is_asked_once(monkeypatch):
    """Without a driver the binding is not even imported, and the search is not made again."""
    monkeypatch.setattr(nvidia, "LIBRARIES", ("libholter-no-such-thing.so.1",))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    loads = []

    def load() -> object:
        loads.append(1)
        return load_nvml()

    reader = Nvidia(load, patience=30)
    for _ in range(2):
        with pytest.raises(NoData, match="no NVIDIA driver"):
            reader.read(Tree(1, [1]))

    assert len(loads) == 1
    assert "pynvml" not in sys.modules
    assert reader.every > 60


def test_a_driver_that_hangs():
    """A driver that does not answer holds nobody up: nothing at first, then a reason, then the late answer."""
    back = threading.Event()
    driver = Driver()

    def load() -> Driver:
        back.wait(60)
        return driver

    reader = Nvidia(load, patience=0.001)
    assert reader.read(Tree(10, [10])) == {}
    reader._aside._out_since -= 100
    with pytest.raises(NoData, match="has not answered"):
        reader.read(Tree(10, [10]))
    back.set()
    reader._patience = 30

    assert reader.read(Tree(10, [10]))["list"][0]["util"] == 97


def test_a_lost_gpu_among_none():
    """A driver that shows no GPU says so."""
    driver = Driver()
    driver.broken["nvmlDeviceGetHandleByIndex"] = NVMLError(15)

    with pytest.raises(NoData, match="no GPU"):
        probe(driver).read(Tree(1, [1]))


def test_a_real_gpu():
    """A real GPU has a name and memory, and a process that holds 1 GB of it shows in it."""
    try:
        load_nvml()
    except NoData as absent:
        pytest.skip(str(absent))
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA")
    code = "import torch; x = torch.ones(2**28, device='cuda'); torch.cuda.synchronize(); print(1, flush=True); input()"
    reader = Nvidia(patience=30)
    before = reader.read(Tree(1, [1]))["list"][0]
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        row = reader.read(Tree(process.pid, [process.pid]))["list"][0]
    finally:
        process.kill()
        process.wait()

    print(row, reader.every)
    assert row["name"]
    assert row["used"] - before["used"] > 2**30
    if "tree" in row:
        assert row["tree"] > 2**30
