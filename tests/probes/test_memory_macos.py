"""Memory on a Mac.

No Mac was at hand: the bytes are constructed after the structs of Apple's headers (rusage_info_v4, xsw_usage,
vm_statistics64), each field with a value of its own, so that a wrong offset shows. The calls into libSystem themselves
are not covered.
"""

from __future__ import annotations

import struct

import pytest

from holter.errors import NoData
from holter.probes.memory_macos import Apple, Memory, parse_footprint, parse_swap_usage, parse_vm_statistics
from holter.probes.probe import Tree
from holter.probes.vm_macos import Vm

PAGE = 16384
GB = 10**9
RUSAGE_V4 = [
    "user_time",
    "system_time",
    "pkg_idle_wkups",
    "interrupt_wkups",
    "pageins",
    "wired_size",
    "resident_size",
    "phys_footprint",
    "proc_start_abstime",
    "proc_exit_abstime",
    "child_user_time",
    "child_system_time",
    "child_pkg_idle_wkups",
    "child_interrupt_wkups",
    "child_pageins",
    "child_elapsed_abstime",
    "diskio_bytesread",
    "diskio_byteswritten",
    "cpu_time_qos_default",
    "cpu_time_qos_maintenance",
    "cpu_time_qos_background",
    "cpu_time_qos_utility",
    "cpu_time_qos_legacy",
    "cpu_time_qos_user_initiated",
    "cpu_time_qos_user_interactive",
    "billed_system_time",
    "serviced_system_time",
    "logical_writes",
    "lifetime_max_phys_footprint",
    "instructions",
    "cycles",
    "billed_energy",
    "serviced_energy",
    "interval_max_phys_footprint",
    "runnable_time",
]
VM_STATISTICS64 = [
    "free:I",
    "active:I",
    "inactive:I",
    "wire:I",
    "zero_fill:Q",
    "reactivations:Q",
    "pageins:Q",
    "pageouts:Q",
    "faults:Q",
    "cow_faults:Q",
    "lookups:Q",
    "hits:Q",
    "purges:Q",
    "purgeable:I",
    "speculative:I",
    "decompressions:Q",
    "compressions:Q",
    "swapins:Q",
    "swapouts:Q",
    "compressor_page:I",
    "throttled:I",
    "external_page:I",
    "internal_page:I",
    "total_uncompressed:Q",
]


def rusage(**values: int) -> bytes:
    return bytes(16) + b"".join(struct.pack("<Q", values.get(name, 10**15 + n)) for n, name in enumerate(RUSAGE_V4))


def vm_statistics(**values: int) -> bytes:
    raw = b""
    for n, entry in enumerate(VM_STATISTICS64):
        name, kind = entry.split(":")
        raw += struct.pack("<" + kind, values.get(name, 10**6 + n))
    return raw


def swap(total: int, used: int) -> bytes:
    return struct.pack("<QQQIi", total, total - used, used, PAGE, 1)


class Mac:
    """A Mac of 16 GB whose processes 10 and 11 are ours and 12 another user's."""

    page = PAGE

    def __init__(self) -> None:
        self.refuse: set[str] = set()

    def rusage(self, pid: int) -> bytes:
        if pid == 12:
            raise PermissionError(1, "Operation not permitted")
        return rusage(phys_footprint=pid * GB)

    def sysctl(self, name: str) -> bytes:
        if name in self.refuse:
            raise FileNotFoundError(2, "No such file or directory")
        return {
            "kern.memorystatus_vm_pressure_level": struct.pack("<i", 4),
            "vm.swapusage": swap(8 * GB, 6 * GB),
            "hw.memsize": struct.pack("<Q", 16 * GB),
        }[name]

    def vm_statistics(self) -> bytes:
        if "vm" in self.refuse:
            raise OSError(5, "host_statistics64 failed")
        return vm_statistics(
            free=1000, speculative=200, inactive=3000, wire=4000, compressor_page=5000, external_page=600
        )


def test_sizes_of_the_structs():
    """The structs are as long as the headers make them: 296, 32 and 152 bytes."""
    assert (len(rusage()), len(swap(1, 1)), len(vm_statistics())) == (296, 32, 152)


def test_rusage():
    """The physical footprint is read from its place."""
    raw = rusage(resident_size=1, phys_footprint=2, lifetime_max_phys_footprint=3)

    assert parse_footprint(raw) == 2


def test_swap_usage():
    """Total and used, not available."""
    assert parse_swap_usage(swap(8 * GB, 6 * GB)) == {"swap_total": 8 * GB, "swap_used": 6 * GB}


def test_vm_statistics():
    """Pages become bytes of this machine's page size; speculative pages are not free."""
    raw = vm_statistics(
        free=10, speculative=4, active=1, inactive=2, wire=3, compressor_page=5, external_page=7, swapins=8, swapouts=9
    )

    assert parse_vm_statistics(raw, PAGE) == {"free": 6 * PAGE, "inactive": 2 * PAGE, "swapins": 8}


def test_apple_reading():
    """The tree's footprint is the sum over its processes; one that may not be read is left out."""
    assert Apple(Mac()).read(Tree(10, [10, 11, 12])) == {
        "footprint": 21 * GB,
        "list": [{"pid": 10, "footprint": 10 * GB}, {"pid": 11, "footprint": 11 * GB}],
        "pressure_level": 4,
        "swap_total": 8 * GB,
        "swap_used": 6 * GB,
        "free": 800 * PAGE,
    }


def test_each_figure_by_itself():
    """A figure that is refused costs only itself."""
    mac = Mac()
    mac.refuse = {"kern.memorystatus_vm_pressure_level", "vm"}

    reading = Apple(mac).read(Tree(10, [10]))

    assert {"footprint", "list", "swap_total", "swap_used"} == set(reading)


def test_nothing_at_all_is_no_data():
    """When all is refused there is a reason and no reading."""
    mac = Mac()
    mac.refuse = {"kern.memorystatus_vm_pressure_level", "vm", "vm.swapusage", "hw.memsize"}

    with pytest.raises(NoData):
        Apple(mac).read(Tree(12, [12]))
    with pytest.raises(NoData):
        Memory(mac).read(Tree(12, [12]))
    with pytest.raises(NoData):
        Vm(mac).read(Tree(12, [12]))


def test_machine_reading():
    """The machine's memory goes by the names it has on Linux."""
    assert Memory(Mac()).read(Tree(10, [10])) == {
        "total": 16 * GB,
        "free": 800 * PAGE,
        "available": 3800 * PAGE,
        "swap_total": 8 * GB,
        "swap_free": 2 * GB,
    }


def test_swap_traffic():
    """Pages that came back from swap go by the name they have on Linux."""
    assert Vm(Mac()).read(Tree(10, [10])) == {"pswpin": 1000017}
