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

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECE = 16 << 20  # bytes that are written at once: as much may be held twice
_READ_WRITE, _PRIVATE, _FIXED = 3, 2, 16  # as mmap(2) has them
_WORD = ctypes.sizeof(ctypes.c_size_t)
_FLAGS, _MAPPED = 7, 2  # in the second word of a block: the C library has mapped it by itself
_MOST = 8192  # pieces: the kernel allows 65,530 mappings
_SMALLEST = 64 << 10
_FAR = 1 << 30  # bytes: how far before them the block may begin
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
        handle, path = tempfile.mkstemp(prefix="holter-aside-", dir=folder)
        os.unlink(path)
        self.file, self.inode = handle, str(os.fstat(handle).st_ino)
        self.at = self.pieces = 0
        libc = ctypes.PyDLL(None, use_errno=True)  # Python's other threads wait meanwhile
        self.mmap = libc.mmap
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        ]  # fmt: skip

    def put(self, blocks):
        """Put these blocks there, given as addresses and sizes; returns the bytes that no longer have to be held."""
        (heap, mapped), moved = self._private(), 0
        for address, size in blocks:
            begin, end = -(-address // _PAGE) * _PAGE, (address + size) // _PAGE * _PAGE
            if end - begin >= _SMALLEST and (_within(heap, begin, end) or _in_one_block(mapped, begin, end)):
                if self.pieces >= _MOST or self.at + end - begin > self.room:
                    break
                self._put(begin, end - begin)
                moved += end - begin
        return moved

    def _private(self):
        """The first heap, and the other spans of memory that are this process's own; what lies in the file is, too."""
        heap, spans = (0, 0), []
        with open("/proc/self/maps") as file:
            for line in file:
                place, rights, _, _, inode, *name = line.split(None, 5)
                name = name[0].strip() if name else ""
                if any(other in name for other in _OTHERS):
                    raise OSError("the memory is another allocator's (%s)" % os.path.basename(name))
                low, high = (int(end, 16) for end in place.split("-"))
                if rights != "rw-p" or (inode != "0" and inode != self.inode):
                    continue
                if name == "[heap]" or low == heap[1]:
                    heap = heap[0] or low, high
                elif spans and spans[-1][1] == low:
                    spans[-1] = spans[-1][0], high
                else:
                    spans.append((low, high))
        return heap, spans

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


def _within(span, begin, end):
    return span[0] <= begin and end <= span[1]


def _in_one_block(mapped, begin, end):
    """Whether pages lie in a single block: it begins at a page, with its size; others, and stacks, lie beside it."""
    low, _ = next((span for span in mapped if _within(span, begin, end)), (begin, end))
    low = max(low, begin - _FAR)
    words = memoryview((ctypes.c_char * (begin - low)).from_address(low)).cast("B").cast("N")
    for number, size in enumerate(reversed(words[1 :: _PAGE // _WORD].tolist()), 1):
        if size & _FLAGS == _MAPPED and not (size - _MAPPED) % _PAGE and size - _MAPPED >= end - begin + number * _PAGE:
            return True
    return False


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
