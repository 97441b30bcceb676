"""Arms faulthandler: stacks into the record when the process crashes, or when Holter asks one that does not move.

It works with the GIL held and in a process that no debugger may attach to. It reads frames without stopping anybody,
which can crash a process whose threads run: such a one is asked through a thread of ours, see `stack_thread`.
"""

import _signal as signal  # type: ignore[import-not-found]  # without the names: they load half a dozen modules
import faulthandler
import os

# Descriptors of ours lie high: a script that closes "all" files and opens its own gets low numbers, so that the
# handler never writes into a file of the user's.
_FD_FROM = 700

_fd = None
_file = None  # device and inode of what our descriptor leads to: the script may have closed it and be using its number


def ask_signal():
    """The signal that asks for stacks: one that neither schedulers nor frameworks use."""
    if hasattr(signal, "SIGRTMIN"):
        return signal.SIGRTMIN + 11
    return getattr(signal, "SIGINFO", None)


def arm(folder):
    """Open this process's stack file and register; returns what the recorder must know to ask safely."""
    global _fd, _file
    number = ask_signal()
    if number is None or signal.getsignal(number) not in (signal.SIG_DFL, None):
        return {"armed": 0}
    low = _open(folder)
    try:
        fd = high(low)
    finally:
        os.close(low)
    _fd, _file = fd, identity(fd)
    faulthandler.register(number, file=fd, all_threads=True, chain=False)
    # The user's own handler for fatal signals writes to stderr, where we read it too: never take its place.
    fatal = not faulthandler.is_enabled()
    if fatal:
        faulthandler.enable(file=fd, all_threads=True)
    return {"armed": int(number), "stack_fd": fd, "fatal": fatal}


def born_of_fork(folder):
    """In a forked child: let the same descriptor lead to a file of the child's own.

    faulthandler knows its files by number, so nothing is registered anew, and a handler of the user's stays.
    """
    global _file
    if file() is None or _fd is None:
        return
    try:
        low = _open(folder)
    except OSError:
        low = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)  # the parent's file is not ours to write into
    try:
        os.dup2(low, _fd, inheritable=False)
    finally:
        os.close(low)
    _file = identity(_fd)


def file():
    """The descriptor of this process's stack file; None where it is not there, or no longer ours."""
    return _fd if _fd is not None and identity(_fd) == _file else None


def _open(folder):
    path = os.path.join(folder, "%d.stacks" % os.getpid())
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def high(low):
    """A second descriptor for the same file, as high as the limit on open files lets it be."""
    import fcntl
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    start = _FD_FROM if soft == resource.RLIM_INFINITY else min(_FD_FROM, soft - 16)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, max(3, start))
    except OSError:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)


def identity(fd):
    try:
        facts = os.fstat(fd)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
