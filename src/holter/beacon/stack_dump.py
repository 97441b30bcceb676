"""Arms faulthandler: all threads' stacks into the record when Holter asks or when the process crashes.

It works with the GIL held and in a process that no debugger may attach to.
"""

import faulthandler
import os
import signal

# Descriptors of ours lie high: a script that closes "all" files and opens its own gets low numbers, so that the
# handler never writes into a file of the user's.
_FD_FROM = 700


def ask_signal():
    """The signal that asks for stacks: one that neither schedulers nor frameworks use."""
    if hasattr(signal, "SIGRTMIN"):
        return signal.SIGRTMIN + 11
    return getattr(signal, "SIGINFO", None)


def arm(folder):
    """Open this process's stack file and register; returns what the recorder must know to ask safely."""
    import fcntl

    number = ask_signal()
    if number is None or signal.getsignal(number) not in (signal.SIG_DFL, None):
        return {"armed": 0}
    path = os.path.join(folder, "%d.stacks" % os.getpid())
    low = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        try:
            fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _FD_FROM)
        except OSError:
            fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(low)
    faulthandler.register(number, file=fd, all_threads=True, chain=False)
    # The user's own handler for fatal signals writes to stderr, where we read it too: never take its place.
    fatal = not faulthandler.is_enabled()
    if fatal:
        faulthandler.enable(file=fd, all_threads=True)
    return {"armed": int(number), "stack_fd": fd, "fatal": fatal}
