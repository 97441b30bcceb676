"""What a system says of itself; another machine's files are constructed, this machine's are real."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holter.errors import NoData
from holter.machine import system_macos


class Mac:
    """The calls of libSystem, with the answers of a Mac; constructed after sysctl(8), since no Mac was at hand."""

    page = 16384

    def __init__(self, **known: bytes) -> None:
        self.known = known

    def sysctl(self, name: str) -> bytes:
        if name not in self.known:
            raise OSError(2, "No such file or directory")
        return self.known[name]

    def rusage(self, pid: int) -> bytes:
        raise NotImplementedError

    def vm_statistics(self) -> bytes:
        raise NotImplementedError


def test_a_mac_names_its_chip_and_the_gpu_in_it() -> None:
    """Without root."""
    mac = Mac(**{"machdep.cpu.brand_string": b"Apple M2 Pro\0", "hw.optional.arm64": b"\x01\0\0\0"})

    assert system_macos.cpu(mac) == "Apple M2 Pro"
    assert system_macos.gpus(mac) == [{"name": "Apple M2 Pro", "shared": True}]


def test_a_mac_with_an_intel_processor_has_no_gpu_that_trains() -> None:
    """It does not know the name at all."""
    assert system_macos.gpus(Mac(**{"machdep.cpu.brand_string": b"Intel(R) Core(TM) i7\0"})) == []


def test_a_mac_that_does_not_tell_its_chip_is_no_data() -> None:
    """And no empty name."""
    with pytest.raises(NoData, match="chip's name"):
        system_macos.cpu(Mac())


if sys.platform == "linux":
    from holter.machine import system_linux

    def test_the_distribution_and_the_kernel(tmp_path: Path) -> None:
        """As os-release(5) has it; without one the kernel alone."""
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "os-release").write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')

        assert system_linux.system(str(tmp_path)).startswith("Debian GNU/Linux 12 (bookworm), Linux ")
        assert system_linux.system(str(tmp_path / "none")).startswith("Linux ")

    def test_a_cpu_that_has_no_name_is_no_data(tmp_path: Path) -> None:
        """As on most ARM servers, where /proc/cpuinfo has numbers alone; constructed."""
        (tmp_path / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n")

        with pytest.raises(NoData, match="no name of a CPU"):
            system_linux.cpu(str(tmp_path))

    def test_a_container_is_known_by_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """And a machine without them is none."""
        monkeypatch.setattr(system_linux.platform, "release", lambda: "6.1.0")
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        plain = system_linux.container(str(tmp_path))
        (tmp_path / ".dockerenv").touch()
        docker = system_linux.container(str(tmp_path))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

        assert (plain, docker, system_linux.container(str(tmp_path))) == ("", "Docker", "Kubernetes")
