"""A heap without holes is set by the environment, beside what the user has tuned there, and known when it is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holter.planner.mapped_heap import WORDS, can_be_set, is_set, setting

pytestmark = pytest.mark.skipif(not can_be_set(), reason="needs the GNU C library")


def test_what_the_user_has_tuned_stays() -> None:
    """The C library reads the words in order."""
    assert setting({}) == {"GLIBC_TUNABLES": WORDS}
    assert setting({"GLIBC_TUNABLES": "glibc.malloc.check=0"}) == {"GLIBC_TUNABLES": f"glibc.malloc.check=0:{WORDS}"}


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({}, False),
        (setting({}), True),
        ({"MALLOC_MMAP_THRESHOLD_": "65536"}, True),
        ({"MALLOC_MMAP_THRESHOLD_": "33554432"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=0x10000"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=many"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, False),
    ],
)
def test_a_heap_that_was_set_is_known(environ: dict[str, str], there: bool) -> None:
    assert is_set(environ) is there


FREED = """
import ctypes
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
size = 4 << 20
warm = library.malloc(31 << 20); library.free(warm)  # a heap as it is keeps all up to such a size from here on
blocks = [library.malloc(size) for _ in range(40)]
for block in blocks:
    ctypes.memset(block, 1, size)
for block in blocks[:-1]:
    library.free(block)
print(int(open("/proc/self/statm").read().split()[1]) * 4096)
"""


def test_what_is_freed_below_a_block_goes_back_to_the_system() -> None:
    """As it is the heap keeps 39 blocks for the sake of the one above them."""
    kept, given = (
        int(subprocess.run([sys.executable, "-c", FREED], env=environ, capture_output=True, check=True).stdout)
        for environ in ({}, setting({}))
    )

    assert kept - given > 120 << 20
