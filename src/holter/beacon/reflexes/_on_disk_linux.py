"""Puts memory that lies idle on disk, in place: its address and what it reads as stay the same.

The pages are written to a file without a name, and the file is mapped over them, privately. From then on the kernel may
drop them when it needs room, and reads them again when they are touched; what is written to becomes memory again. So it
does not matter to whom they belong, or whether they turn out not to be idle. The file goes with the process.

Only pages within blocks that the C library has mapped by themselves, or in its first heap: those of its other heaps may
be dropped, and taken for empty when they grow again.
"""

import ctypes
import os
import tempfile

from .. import stack_dump

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECE = 16 << 20  # bytes that are written at once: as much may be held twice
_READ_WRITE, _PRIVATE, _FIXED = 3, 2, 16  # as mmap(2) has them
_WORD = ctypes.sizeof(ctypes.c_size_t)
_FLAGS, _MAPPED = 7, 2  # in the second word of a block: the C library has mapped it by itself
_MOST = 24_000  # pieces: each may make two mappings more, of 65,530 that the kernel allows
_SMALLEST = 64 << 10
_FAR, _READ = 1 << 30, 1 << 20  # bytes: how far before them a block may begin, and what is read of that at once
_DISK = 0.5  # of what is free there
_DISKS = ("ext4", "xfs", "btrfs", "overlay", "zfs", "f2fs", "ext3", "ext2", "bcachefs")  # no memory, no network
_OTHERS = ("jemalloc", "tcmalloc", "mimalloc")  # nothing is known of what they take for empty


class OnDisk:
    """The file of this process, in the first of these folders that is on a disk of this machine."""

    def __init__(self, folders):
        folder = next((one for one in folders if one and _kind_of(one) in _DISKS), None)
        if folder is None:
            raise OSError("there is no folder on a disk of this machine")
        found = os.statvfs(folder)
        self.room = int(found.f_bavail * found.f_frsize * _DISK)
        low, path = tempfile.mkstemp(prefix="holter-aside-", dir=folder)
        try:
            os.unlink(path)
            self.file = stack_dump.high(low)
        finally:
            os.close(low)
        self.known, self.inode = stack_dump.identity(self.file), str(os.fstat(self.file).st_ino)
        self.pid = os.getpid()  # a forked child must not write into it
        self.at = self.pieces = 0
        libc = ctypes.PyDLL(None, use_errno=True)  # Python's other threads wait meanwhile
        self.mmap = libc.mmap
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        ]  # fmt: skip

    def put(self, blocks):
        """Put these blocks there, given as addresses and sizes; returns the bytes that no longer have to be held."""
        if not self._is_ours():
            raise OSError("the script has closed its file, and may be using the number")
        moved = 0
        with Memory(self.inode) as memory:
            for address, size in blocks:
                begin, end = -(-address // _PAGE) * _PAGE, (address + size) // _PAGE * _PAGE
                if end - begin < _SMALLEST or not memory.may_be_put(begin, end):
                    continue
                if self.pieces >= _MOST or self.at + end - begin > self.room:
                    break
                self._put(begin, end - begin)
                moved += end - begin
        return moved

    def _is_ours(self):
        """Whether the number still means our file: without a name, and as long as it was left."""
        if stack_dump.identity(self.file) != self.known:
            return False
        found = os.fstat(self.file)  # the system gives the identity of a file that is gone to the next one
        return found.st_nlink == 0 and found.st_size == self.at

    def _put(self, begin, size):
        content = memoryview((ctypes.c_char * size).from_address(begin)).cast("B")
        for at in range(0, size, _PIECE):
            some, done = content[at : at + _PIECE], 0
            while done < len(some):
                done += os.pwrite(self.file, some[done:], self.at + at + done)
            os.fdatasync(self.file)  # what is not written yet could not be dropped
            os.posix_fadvise(self.file, self.at + at, len(some), os.POSIX_FADV_DONTNEED)
        if self.mmap(begin, size, _READ_WRITE, _PRIVATE | _FIXED, self.file, self.at) != begin:
            raise OSError(ctypes.get_errno(), "mmap")
        self.at += size
        self.pieces += 1


class Memory:
    """What this process has mapped, and how the C library has divided it.

    Read through a file: what another thread, or Python itself, unmaps meanwhile is an error there, and no crash.
    """

    def __init__(self, inode):
        self.heap, self.spans = (0, 0), []  # of each span the pieces that are memory, and not in our file
        self.blocks = []  # that were found before, as (begin, end)
        with open("/proc/self/maps") as file:
            for line in file:
                self._know(inode, *line.split(None, 5))
        self.file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)

    def _know(self, ours, place, rights, _offset, _device, inode, name=""):
        if any(other in name for other in _OTHERS):
            raise OSError("the memory is another allocator's (%s)" % os.path.basename(name.strip()))
        low, high = (int(end, 16) for end in place.split("-"))
        if rights != "rw-p" or inode not in ("0", ours):
            return
        if name.startswith("[heap]") or low == self.heap[1]:
            self.heap = self.heap[0] or low, high
            return
        if not self.spans or self.spans[-1].high != low:
            self.spans.append(Span(low))
        self.spans[-1].high = high
        if inode == "0":
            self.spans[-1].pieces.append((low, high))

    def may_be_put(self, begin, end):
        """Whether pages lie in the first heap, or in a single block that was mapped by itself."""
        if self.heap[0] <= begin and end <= self.heap[1]:
            return True
        if any(low < begin and end <= high for low, high in self.blocks):
            return True
        span = next((one for one in self.spans if one.low < begin and end <= one.high), None)
        return span is not None and self._in_one_block(span, begin, end)

    def _in_one_block(self, span, begin, end):
        """A block begins at a page, with its size; others, and stacks, lie beside it. Pages in our file begin none."""
        for low, high in reversed(span.pieces):
            high = min(high, begin)
            while low < high and begin - high < _FAR:
                at = max(low, high - _READ)
                words = memoryview(os.pread(self.file, high - at, at))
                if len(words) != high - at:
                    return False
                for number, size in enumerate(words.cast("N")[1 :: _PAGE // _WORD].tolist()):
                    block = at + number * _PAGE
                    is_block = size & _FLAGS == _MAPPED and not (size - _MAPPED) % _PAGE
                    if is_block and end <= block + size - _MAPPED <= span.high:
                        self.blocks.append((block, block + size - _MAPPED))
                        return True
                high = at
        return False


class Span:
    """Mappings side by side."""

    def __init__(self, low):
        self.low = self.high = low
        self.pieces = []


def _kind_of(folder):
    """The kind of file system that a folder lies on."""
    folder, best, kind = os.path.realpath(folder), "", ""
    with open("/proc/self/mounts", errors="surrogateescape") as file:
        for line in file:
            _, point, name, *_ = line.split()
            point = point.replace("\\040", " ")
            if (folder + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                best, kind = point, name
    return kind
