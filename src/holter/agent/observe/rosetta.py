"""Whether this Python was made for Intel and runs on Apple silicon, where it can't reach the GPU."""

import sys


def is_translated():
    """What the system says of this process (sysctl.proc_translated)."""
    if sys.platform != "darwin":
        return False
    import ctypes

    answer, size = ctypes.c_int(0), ctypes.c_size_t(4)
    call = ctypes.CDLL(None).sysctlbyname
    return call(b"sysctl.proc_translated", ctypes.byref(answer), ctypes.byref(size), None, 0) == 0 and answer.value == 1
