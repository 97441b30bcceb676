"""Memory on a Mac, where CPU and GPU share one pool: footprint, pressure level, compressor and swap.

All of it without root: proc_pid_rusage and sysctl from libSystem, host_statistics64 from Mach. The layouts
are those of <sys/resource.h>, <sys/sysctl.h> and <mach/vm_statistics.h>.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, Protocol

from holter.errors import NoData
from holter.probes.probe import Reading, Tree

# struct rusage_info_v4: a uuid, then 35 counters; the footprint is the 8th.
_RUSAGE_V4 = struct.Struct("<16s35Q")
_RUSAGE_INFO_V4 = 4
# struct xsw_usage: total, available, used; page size; whether it is encrypted.
_SWAP_USAGE = struct.Struct("<3QIi")
# struct vm_statistics64, revision 1: natural_t are 32 bits, the counters between them 64.
_VM_STATISTICS64 = struct.Struct("<4I9Q2I4Q4IQ")
_HOST_VM_INFO64 = 4


def parse_footprint(raw: bytes) -> int:
    """The physical footprint from a struct rusage_info_v4."""
    footprint: int = _RUSAGE_V4.unpack_from(raw)[8]
    return footprint


def parse_swap_usage(raw: bytes) -> dict[str, int]:
    """`swap_total` and `swap_used` from a struct xsw_usage."""
    total, _, used, _, _ = _SWAP_USAGE.unpack_from(raw)
    return {"swap_total": total, "swap_used": used}


def parse_vm_statistics(raw: bytes, page: int) -> dict[str, int]:
    """Of what vm_stat(1) prints: what is free and what may be, in bytes, and the pages that came back from swap."""
    f = _VM_STATISTICS64.unpack_from(raw)
    free, inactive, speculative = f[0], f[2], f[14]
    return {
        # The kernel counts speculative pages as free; vm_stat does not, since they hold data read ahead.
        "free": max(0, free - speculative) * page,
        "inactive": inactive * page,
        "swapins": f[17],
    }


class Source(Protocol):
    """The three system calls that this file needs, as bytes."""

    page: int

    def rusage(self, pid: int) -> bytes: ...
    def sysctl(self, name: str) -> bytes: ...
    def vm_statistics(self) -> bytes: ...


class LibSystem:
    """The real ones; each raises OSError."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)
        self._lib.mach_host_self.restype = ctypes.c_uint
        self._host = self._lib.mach_host_self()  # once: each call takes a reference that is never given back
        self.page = os.sysconf("SC_PAGE_SIZE")

    def rusage(self, pid: int) -> bytes:
        buffer = ctypes.create_string_buffer(_RUSAGE_V4.size)
        if self._lib.proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(_RUSAGE_INFO_V4), buffer) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return buffer.raw

    def sysctl(self, name: str) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        size = ctypes.c_size_t(len(buffer))
        if self._lib.sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return buffer.raw[: size.value]

    def vm_statistics(self) -> bytes:
        buffer = ctypes.create_string_buffer(_VM_STATISTICS64.size)
        count = ctypes.c_uint(_VM_STATISTICS64.size // 4)
        status = self._lib.host_statistics64(
            ctypes.c_uint(self._host), ctypes.c_int(_HOST_VM_INFO64), buffer, ctypes.byref(count)
        )
        if status != 0:
            raise OSError(status, "host_statistics64 failed")
        return buffer.raw


class Apple:
    """The run's physical footprint, and how hard the system is pressed; `list` has it by process."""

    name = "apple"
    every = 1.0
    urgent = True

    def __init__(self, source: Source | None = None) -> None:
        self._source: Source = source if source is not None else LibSystem()

    def read(self, tree: Tree) -> Reading:
        reading: dict[str, Any] = {}
        rows = []
        for pid in tree.pids:
            try:
                rows.append({"pid": pid, "footprint": parse_footprint(self._source.rusage(pid))})
            except (OSError, struct.error):
                continue  # gone, or another user's
        if rows:
            reading["footprint"] = sum(row["footprint"] for row in rows)
            reading["list"] = rows
        try:
            level = self._source.sysctl("kern.memorystatus_vm_pressure_level")
            reading["pressure_level"] = int.from_bytes(level[:4], "little")
        except OSError:
            pass
        try:
            reading.update(parse_swap_usage(self._source.sysctl("vm.swapusage")))
        except (OSError, struct.error):
            pass
        try:
            vm = parse_vm_statistics(self._source.vm_statistics(), self._source.page)
            reading.update({"free": vm["free"]})
        except (OSError, struct.error):
            pass
        if not reading:
            raise NoData("none of the system's memory figures could be read")
        return reading


class Memory:
    """What the whole machine has left, under the same names as on Linux."""

    name = "memory"
    every = 1.0
    urgent = True

    def __init__(self, source: Source | None = None) -> None:
        self._source: Source = source if source is not None else LibSystem()

    def read(self, tree: Tree) -> Reading:  # noqa: ARG002 - the shape of a probe
        reading: dict[str, int] = {}
        try:
            reading["total"] = int.from_bytes(self._source.sysctl("hw.memsize")[:8], "little")
        except OSError:
            pass
        try:
            vm = parse_vm_statistics(self._source.vm_statistics(), self._source.page)
            reading["free"] = vm["free"]
            reading["available"] = vm["free"] + vm["inactive"]
        except (OSError, struct.error):
            pass
        try:
            swap = parse_swap_usage(self._source.sysctl("vm.swapusage"))
            reading["swap_total"] = swap["swap_total"]
            reading["swap_free"] = swap["swap_total"] - swap["swap_used"]
        except (OSError, struct.error):
            pass
        if not reading:
            raise NoData("none of the system's memory figures could be read")
        return reading


PROBES = [Apple, Memory]
