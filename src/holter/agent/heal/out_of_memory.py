"""Which errors of a framework's mean that memory ran out, in words that have been the same for years, and how what a
failed attempt holds is let go of."""

import os
import resource
from threading import Thread

_WORDS = (
    "out of memory",  # CUDA, MPS, ROCm
    "can't allocate memory",  # PyTorch on the CPU
    "cannot allocate memory",
    "invalid buffer size",  # MPS, for a single tensor above Metal's limit
    "unable to allocate",  # NumPy
    "cublas_status_alloc_failed",
    "could not create a memory",  # oneDNN
)
# oneDNN says no more than this when it gets no pages for its code: memory, where there is a wall before it.
_AT_SOFT_LIMIT = ("could not create a primitive", "could not execute a primitive")
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def oom_error(torch, words):
    """An error that says so, of PyTorch's own kind; before 2.5 it is CUDA's."""
    kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
    return kind(words)


def let_go(error):
    """Let the frames of a failed attempt go of what they hold, and keep the lines that they were at.

    Those of ours are not in the traceback any more (`drop_own_frames`), but the frames that they called know them.
    """
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        while frame is not None:
            back = frame.f_back
            try:
                frame.clear()
            except RuntimeError:  # it is running, and so are those above
                break
            frame = back
    error.__context__ = None


def forget(error):
    """The same of one that nobody will be shown: where it was caught, it and its frames would keep each other."""
    let_go(error)
    error.__traceback__ = None


def drop_own_frames(error):
    """Take our lines off the beginning of a traceback; to be called before a bare `raise`, from Python 3.11 on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    error.__traceback__ = trace


def is_oom(error):
    """Tell whether this error says that there was no memory left."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):  # torch.OutOfMemoryError is one too
        return False
    words = str(error).lower()
    return any(word in words for word in _WORDS) or (broke_onednn(error) and _has_soft_limit())


def broke_onednn(error):
    """Tell whether oneDNN found no memory for its code: it then makes none in this thread any more, however much there
    is."""
    return any(word in str(error).lower() for word in _AT_SOFT_LIMIT)


def _has_soft_limit():
    return resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY


# --- Empties PyTorch's queue of what a failed backward has left in it
# A backward that runs out of memory leaves the branches that were still to come in the queue of its thread, and with
# them all that they have saved. They are thrown away when they are next met, which within a backward of somebody's is
# only after it: too late for another try. A backward of the oldest graph there is comes after them all, and so meets
# them.


class CacheRelease:
    """One tiny graph of a device, older than any other: nodes are numbered anew in each thread."""

    def __init__(self, torch, device):
        self.torch = torch
        self.pair = None

        def make():
            try:
                with torch.enable_grad():
                    leaf = torch.zeros((), device=device, requires_grad=True)
                    self.pair = leaf, leaf * 1.0
            except Exception:
                return

        thread = Thread(target=make)
        try:
            thread.start()
        except RuntimeError:  # no more threads are allowed
            return
        thread.join()

    def empty(self):
        """Without a graph, for which there was no memory either, what lies in the queue is thrown away later."""
        if self.pair is not None:
            leaf, out = self.pair
            self.torch.autograd.grad(out, leaf, retain_graph=True)
