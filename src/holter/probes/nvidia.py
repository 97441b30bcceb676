"""NVIDIA GPUs, as the driver sees them: memory by process, use, clocks held back, and memory errors."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

from holter.errors import NoData
from holter.probes.aside import Aside, Late
from holter.probes.owner import owner_of
from holter.probes.probe import Reading, Tree

CALM_S = 1.0
LONGEST_REST = 10.0
TOO_SLOW = 0.005  # seconds per reading, above which the driver is asked more rarely
MAX_WAIT_S = 0.25  # seconds that other readings may be held up
LIBRARIES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # a constant of the kernel (PROC_PID_INIT_INO)

# Bits of nvmlDeviceGetCurrentClocksThrottleReasons. Bit 0, idle, is left out: such a GPU is not held back.
_THROTTLE = {
    0x2: "application-clocks",
    0x4: "power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "thermal",
    0x40: "hardware-thermal",
    0x80: "power-brake",
    0x100: "display-clocks",
}


def throttle_words(bits: int) -> list[str]:
    """The reasons for which the clocks are held back."""
    return [word for bit, word in _THROTTLE.items() if bits & bit]


def load_nvml() -> Any:
    """The NVML binding, started up; raises `NoData` where there is no driver."""
    for library in LIBRARIES:
        try:
            ctypes.CDLL(library)  # far cheaper than the binding, which most machines then never load
            break
        except OSError:
            continue
    else:
        raise NoData("no NVIDIA driver on this machine")
    try:
        import pynvml
    except ImportError as error:
        raise NoData("the NVIDIA driver has no Python binding here: pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoData(f"the NVIDIA driver does not answer: {error}; does nvidia-smi work?") from error
    return pynvml


def driver_version(load: Callable[[], Any] = load_nvml, patience: float = 10.0) -> str:
    """The driver's own number, asked for once; raises `NoData` where it does not tell it."""
    try:
        nvml = load()
        said = Aside[Any]().ask(nvml.nvmlSystemGetDriverVersion, patience)
    except Late as late:
        raise NoData(f"the NVIDIA driver has not answered for {late.waited:.0f} s") from None
    except (AttributeError, nvml.NVMLError) as error:
        raise NoData(f"the NVIDIA driver does not tell its version: {error}") from error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


class _Gpu:
    """One GPU: what never changes is asked for once."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.index = index
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.uncorrected: int | None = None
        self.unsupported: set[str] = set()
        self.fixed: dict[str, Any] = {"index": index}
        name = self.ask(nvml, "nvmlDeviceGetName")
        if name is not None:
            self.fixed["name"] = name.decode("utf-8", "replace") if isinstance(name, bytes) else name

    def ask(self, nvml: Any, call: str, *arguments: Any) -> Any:
        """What one NVML call says of this GPU, or None; what it does not have is not asked for again."""
        if call in self.unsupported:
            return None
        try:
            return getattr(nvml, call)(self.handle, *arguments)
        except nvml.NVMLError as error:
            if getattr(error, "value", None) == nvml.NVML_ERROR_NOT_SUPPORTED:
                self.unsupported.add(call)
            return None
        except AttributeError:  # a binding that is older than the call
            self.unsupported.add(call)
            return None


class Nvidia:
    """Every GPU of the machine, through NVML.

    The calls are made aside: the first one may take seconds, and on a GPU that fell off the bus none ever
    returns. `tree` is left out where the driver's process numbers are not ours, as in a container.
    """

    name = "nvidia"
    urgent = False

    def __init__(
        self,
        load: Callable[[], Any] = load_nvml,
        clock: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
        patience: float = MAX_WAIT_S,
    ) -> None:
        self.every = CALM_S
        self._load = load
        self._clock = clock
        self._proc = proc
        self._patience = patience
        self._aside: Aside[dict[str, Any]] = Aside()
        self._nvml: Any = None
        self._absent: str | None = None
        self._gpus: list[_Gpu] = []
        self._cuda = ""
        self._ecc_at = float("-inf")
        self._known: dict[int, dict[str, str]] = {}

    def read(self, tree: Tree) -> Reading:
        if self._absent is not None:
            raise NoData(self._absent)
        pids = frozenset(tree.pids)
        try:
            return self._aside.ask(lambda: self._ask_driver(pids), self._patience)
        except Late as late:
            if late.waited < 5:
                return {}
            raise NoData(f"the NVIDIA driver has not answered for {late.waited:.0f} s") from None
        except NoData as absent:
            if self._nvml is None:  # a driver does not appear in the middle of a run
                self._absent = str(absent)
                self.every = 3600.0
            raise

    def _ask_driver(self, pids: frozenset[int]) -> dict[str, Any]:
        if self._nvml is None:
            self._start()
        nvml = self._nvml
        began = self._clock()
        if began - self._ecc_at >= 10:
            self._ecc_at = began
            kind = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
            for gpu in self._gpus:
                gpu.uncorrected = gpu.ask(nvml, "nvmlDeviceGetTotalEccErrors", *kind)
        rows = [self._row(nvml, gpu, pids) for gpu in self._gpus]
        cost = self._clock() - began
        self.every = CALM_S if cost <= TOO_SLOW else min(LONGEST_REST, CALM_S * cost / TOO_SLOW)
        return {"list": rows, "cuda": self._cuda}

    def _start(self) -> None:
        nvml = self._load()
        gpus = []
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise NoData(f"the NVIDIA driver does not answer: {error}; does nvidia-smi work?") from error
        for index in range(count):
            try:
                gpus.append(_Gpu(nvml, index))
            except nvml.NVMLError:
                continue  # one GPU that is lost must not hide the others
        if not gpus:
            raise NoData("the NVIDIA driver is here but shows no GPU")
        self._gpus = gpus
        try:
            newest = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
            self._cuda = f"{newest // 1000}.{newest % 1000 // 10}"
        except (nvml.NVMLError, AttributeError):
            pass
        self._nvml = nvml

    def _row(self, nvml: Any, gpu: _Gpu, pids: frozenset[int]) -> dict[str, Any]:
        row = dict(gpu.fixed)
        memory = gpu.ask(nvml, "nvmlDeviceGetMemoryInfo")
        if memory is not None:
            row["total"], row["used"] = int(memory.total), int(memory.used)
        use = gpu.ask(nvml, "nvmlDeviceGetUtilizationRates")
        if use is not None:
            row["util"] = int(use.gpu)
        reasons = gpu.ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons")
        if reasons is not None:
            row["throttle"] = throttle_words(int(reasons))
        if gpu.uncorrected is not None:
            row["ecc_uncorrected"] = int(gpu.uncorrected)
        self._put_processes(row, nvml, gpu, pids)
        return row

    def _put_processes(self, row: dict[str, Any], nvml: Any, gpu: _Gpu, pids: frozenset[int]) -> None:
        found = gpu.ask(nvml, "nvmlDeviceGetComputeRunningProcesses")
        if found is None:
            return
        processes: list[dict[str, Any]] = []
        for one in found:
            entry: dict[str, Any] = {"pid": int(one.pid)}
            if one.usedGpuMemory is not None:
                entry["used"] = int(one.usedGpuMemory)
            if one.pid not in pids:
                entry.update(self._who(int(one.pid)))
            processes.append(entry)
        row["processes"] = processes
        ours = [entry for entry in processes if entry["pid"] in pids]
        if any("used" not in entry for entry in ours):
            return
        if ours or self._numbers_are_ours():
            row["tree"] = sum(entry["used"] for entry in ours)

    def _who(self, pid: int) -> dict[str, str]:
        """Whose process it is, where its number means the same to the driver and to us."""
        if pid not in self._known:
            self._known[pid] = owner_of(pid, self._proc) if self._numbers_are_ours() else {}
        return self._known[pid]

    def _numbers_are_ours(self) -> bool:
        try:
            return os.readlink(f"{self._proc}/self/ns/pid") == _FIRST_PID_NAMESPACE
        except OSError:
            return False


PROBES = [Nvidia]
