"""Where a loop's states are kept: written by a thread, whole or not at all, the last two of them.

Small states lie in shared memory, larger ones on disk; a copy goes to the disk now and then in any case. What a
process has written is still there after a SIGKILL, in either place.
"""

import ctypes
import os
import pickle
import struct
import sys
import threading
from time import monotonic

from ...facts import host_memory
from ...record import environment
from . import copy_budget as budget

_MAX_KEPT = 2
_MEMORY_SHARE = 0.05  # of the memory there is, for all that lies in shared memory
_DISK_EVERY_SECONDS = 60.0
_END = ".state"


class Store:
    """The states of one loop, by rising numbers."""

    def __init__(self, agent, name):
        self.agent, self.name = agent, name
        self.fast = os.environ.get(environment.STATE)
        self.disk = os.environ.get(environment.STATE_DISK)
        self.number = 0
        self.size = 0
        self.reported_at = self.next_disk = 0.0
        self.lock = threading.Lock()
        self.waiting = None
        self.busy = False

    def put(self, frame, snapshot):
        """Have a state written as soon as its copies have arrived."""
        with self.lock:
            self.waiting = frame, snapshot
            if not self.busy:
                self.busy = True
                # No daemon: one that is cut off at the end of the interpreter, in the middle of PyTorch, aborts it.
                threading.Thread(target=self._work, name="holter-state").start()

    def newest(self):
        """The newest state that can be read as (frame, tensors, where it lay), or None."""
        found = [(number, os.path.dirname(path) == self.fast, path) for number, path in self._paths()]
        for number, fast, path in sorted(found, reverse=True):
            self.number = max(self.number, number)
            try:
                return (*read(path), "in shared memory" if fast else "on disk")
            except Exception as error:  # one that a crash of the machine has torn: the one before it is whole
                self.agent.guard.caught("state", error)
        return None

    def forget(self):
        """Drop all states of a loop that is done with, also the one that is still to be written."""
        folders = self._folders()
        with self.lock:
            self.waiting, self.disk, self.fast = None, None, None
        for _number, path in self._paths(folders):
            _drop(path)

    def _folders(self):
        return [folder for folder in (self.fast, self.disk) if folder and os.path.isdir(folder)]

    def _paths(self, folders=None):
        start = self.name + "."
        for folder in self._folders() if folders is None else folders:
            for name in os.listdir(folder):
                if name.startswith(start) and name.endswith(_END):
                    yield int(name[len(start) : -len(_END)]), os.path.join(folder, name)

    def _work(self):
        while True:
            with self.lock:
                taken, self.waiting = self.waiting, None
                if taken is None:
                    self.busy = False
                    return
            try:
                frame, snapshot = taken
                snapshot.wait()
                self._keep(frame, snapshot.tensors)
            except Exception as error:
                self.agent.guard.caught("state", error)
            taken = frame = snapshot = None

    def _keep(self, frame, tensors):
        self.number += 1
        self.size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        kept = self._fits() and self._write(self.fast, frame, tensors, False)
        now = monotonic()
        if not kept or now >= self.next_disk:
            self.next_disk = now + _DISK_EVERY_SECONDS
            kept = self._write(self.disk, frame, tensors, kept) or kept
        if kept and (not self.reported_at or now >= self.reported_at + _DISK_EVERY_SECONDS):
            self.reported_at = now
            self.agent.say("state", source="resumable", step=frame["steps"], epoch=frame["epoch"], bytes=self.size)

    def _fits(self):
        """Shared memory counts as the run's own: only as much of it is taken as will not be missed."""
        try:
            there = os.statvfs(self.fast or "")
        except OSError:
            return False
        most = min(_MEMORY_SHARE * _memory(), there.f_bavail * there.f_frsize / 2)
        return (_MAX_KEPT + 1) * self.size <= most and self.fits_in_memory()

    def fits_in_memory(self):
        """A copy of the state is taken from what the training has left: never more than a tenth of it."""
        free = budget.free()
        return free is None or self.size <= free // budget.SHARE

    def _write(self, folder, frame, tensors, lasting):
        if not folder:
            return False
        path = os.path.join(folder, "%s.%d%s" % (self.name, self.number, _END))
        try:
            write(path, frame, tensors, lasting)
        except OSError as error:
            self.agent.guard.caught("state", error)
            return False
        if folder not in (self.fast, self.disk):
            _drop(path)  # the loop was done with while this was written
            return False
        for _number, old in sorted(self._paths([folder]))[:-_MAX_KEPT]:
            _drop(old)
        return True


def _drop(path):
    """Remove a state, which the training's thread and the one that writes may both do at once."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _memory():
    """The memory that this process may take: the machine's, or its control groups'."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *(limit for _folder, limit in host_memory.groups())])


# --- A state as a file: a pickled frame, then the tensors' bytes as they lie in memory
# Not `torch.save`: that one computes checksums while it holds the interpreter's lock, and the training would wait for
# it. A plain write lets go of the lock. The file is the user's own and private; nobody else's is ever read.

_HEAD = struct.Struct("<8sQ")
_MAGIC = b"HOLTSTAT"


def write(path, frame, tensors, lasting):
    """Write to a new file and put it in its place; returns its size."""
    rows = [(str(tensor.dtype).partition(".")[2], tuple(tensor.shape), _bytes(tensor)) for tensor in tensors]
    head = pickle.dumps((frame, rows), 4)
    part = path + ".part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
            _all(file, _HEAD.pack(_MAGIC, len(head)))
            _all(file, head)
            for tensor, row in zip(tensors, rows):  # noqa: B905 - newer than 3.9
                if row[2]:
                    _all(file, (ctypes.c_char * row[2]).from_address(tensor.data_ptr()))
            if lasting:
                os.fsync(file.fileno())
            size = file.tell()
        os.replace(part, path)
        return size
    except OSError:
        if os.path.exists(part):
            os.unlink(part)  # half of it would only hold the space that is missing
        raise


def read(path):
    """The frame and the tensors of a file; raises where it is not whole."""
    torch = sys.modules.get("torch")
    with open(path, "rb") as file:
        magic, length = _HEAD.unpack(file.read(_HEAD.size))
        if magic != _MAGIC:
            raise ValueError("not a state")
        frame, rows = pickle.loads(file.read(length))
        tensors = []
        for dtype, shape, size in rows:
            held = bytearray(file.read(size))
            if len(held) != size:
                raise ValueError("cut off")
            kind = getattr(torch, dtype)
            flat = torch.frombuffer(held, dtype=kind) if size else torch.empty(0, dtype=kind)
            tensors.append(flat.reshape(shape))
    return frame, tensors


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _all(file, data):
    view = memoryview(data).cast("B")
    while view:
        view = view[file.write(view) :]
