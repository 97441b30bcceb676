"""Which errors of a framework's mean that memory ran out, in words that have been the same for years."""

_WORDS = (
    "out of memory",  # CUDA, MPS, ROCm
    "can't allocate memory",  # PyTorch on the CPU
    "cannot allocate memory",
    "invalid buffer size",  # MPS, for a single tensor above Metal's limit
    "unable to allocate",  # NumPy
    "cublas_status_alloc_failed",
    "could not create a memory",  # oneDNN
)


def oom_error(torch, words):
    """An error that says so, of PyTorch's own kind; before 2.5 it is CUDA's."""
    kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
    return kind(words)


def is_oom(error):
    """Tell whether this error says that there was no memory left."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):  # torch.OutOfMemoryError is one too
        return False
    words = str(error).lower()
    return any(word in words for word in _WORDS)
