"""A state as a file: a pickled frame, then the tensors' bytes as they lie in memory.

Not `torch.save`: that one computes checksums while it holds the interpreter's lock, and the training would wait for it.
A plain write lets go of the lock. The file is the user's own and private; nobody else's is ever read.
"""

import ctypes
import os
import pickle
import struct
import sys

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
