"""Freed heap is not used again: each tensor after that has pages that the wall counts. Until there is room to spare."""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes import CDLL

import pytest

if sys.platform != "linux" or not hasattr(CDLL(None), "mallopt"):
    pytest.skip("glibc's heap", allow_module_level=True)

LIBC = """
import ctypes, json, resource
from holter.facts import host_memory
from holter.agent.torch.heal.memory_budget import Heap

MB = 1 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
"""
SCRIPT = """

def blocks(n):
    taken = []
    while len(taken) < n:
        block = libc.malloc(10 * MB)
        if not block:
            break
        libc.memset(block, 1, 10 * MB)
        taken.append(block)
    return taken


def wall(room):
    limit = host_memory.status("VmData") + room
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


libc.mallopt(-3, 1 << 30)  # all of these lie in the heap, as tensors did before the threshold was set
held = blocks(30)
between = libc.malloc(200_000)  # keeps the end of the heap in use
for block in held:
    libc.free(block)
wall(0)
assert not libc.malloc(1 << 30)  # from here on this thread's malloc goes to another heap first
wall(100 * MB)
heap = Heap()
if %(take)s:
    heap.give_back()
else:
    host_memory.trim()
wall(100 * MB)
before = host_memory.status("VmRSS")
found = blocks(60)
print(json.dumps({"blocks": len(found), "grown": (host_memory.status("VmRSS") - before) / MB, "taken": heap.taken}))
"""


def filled(take: bool) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", LIBC + SCRIPT % {"take": take}], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_the_wall_counts_all_that_is_touched_after_the_heap_was_given_back() -> None:
    """There are 100 MB up to the wall, and 300 MB of freed heap behind the thread's back."""
    found = filled(take=True)

    assert found["taken"] > 0
    assert 80 <= found["grown"] <= 110


def test_without_that_the_freed_heap_is_filled_behind_the_wall() -> None:
    """What the look above would miss, if it could not fail."""
    assert filled(take=False)["grown"] > 200


RELAXED = """

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        block = libc.malloc(4 * MB)
        libc.memset(block, 1, 4 * MB)
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


heap = Heap()
found = [faults()]
for _ in range(3):
    heap.relax()
    faults()
    found.append(faults())
    heap.give_back()
    found.append(faults())
print(json.dumps(found))
"""


def test_with_room_to_spare_freed_memory_is_used_again_until_it_runs_out() -> None:
    """Fifty tensors of 4 MB, one after the other, in pages: made anew for each, kept, and anew. Twice, not for ever."""
    done = subprocess.run([sys.executable, "-c", LIBC + RELAXED], capture_output=True, text=True, check=True)
    strict, *later = json.loads(done.stdout)

    assert strict > 100
    assert [pages > strict / 2 for pages in later] == [False, True, False, True, True, True]
