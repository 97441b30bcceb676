"""Stacks for the record: when the process crashes, and when Holter asks for them.

A process that stands still is asked by a signal, which faulthandler answers: also with the GIL held, and where no
debugger may attach. But it reads frames without stopping anybody, wherever the threads are just then. A frame that is
being entered at that moment is half made, and reading it crashes the process: a loop with many calls from C into Python
dies of about a hundred such questions. So a process that runs is asked through a pipe, at which a thread of ours waits.
It costs nothing until a question comes, and reads the frames with the GIL held, when none of them moves. Where it gets
no GIL it gives no answer: then the GIL is held in compiled code, no frame moves either, and the signal may be used.

The thread is not one of `threading`'s: a script that joins or counts all threads does not meet it.
"""

import _signal as signal  # type: ignore[import-not-found]  # without the names: they load half a dozen modules
import _thread
import faulthandler
import os
import sys

# Descriptors of ours lie high: a script that closes "all" files and opens its own gets low numbers, so that the
# handler never writes into a file of the user's.
_FD_FROM = 700
_MAX_DEPTH = 200  # frames of one thread
_MAX_THREADS = 64
_SYNCHRONOUS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")  # those that a thread brings upon itself

# A descriptor, and device and inode of what it leads to: the script may have closed it and be using its number.
_stack_fd = _stack_file = None
_pipe_fd = _pipe_file = None
_pid = None  # of the process in which the thread was started
_idents = {}  # the kernel's number of a thread -> Python's, for those that have made theirs known


# --- by signal -------------------------------------------------------------------------------------------------------


def ask_signal():
    """The signal that asks for stacks: one that neither schedulers nor frameworks use."""
    if hasattr(signal, "SIGRTMIN"):
        return signal.SIGRTMIN + 11
    return getattr(signal, "SIGINFO", None)


def arm(folder):
    """Open this process's stack file, and have faulthandler write into it."""
    global _stack_fd, _stack_file
    number = ask_signal()
    if number is None or signal.getsignal(number) not in (signal.SIG_DFL, None):
        return
    low = _open(folder)
    try:
        _stack_fd = _high(low)
    finally:
        os.close(low)
    _stack_file = _identity(_stack_fd)
    faulthandler.register(number, file=_stack_fd, all_threads=True, chain=False)
    # The user's own handler for fatal signals writes to stderr, where we read it too: never take its place.
    if not faulthandler.is_enabled():
        faulthandler.enable(file=_stack_fd, all_threads=True)


def born_of_fork(folder):
    """In a forked child: a stack file of its own; the thread is gone, and the pipe is the parent's."""
    global _stack_file, _pid, _pipe_fd
    if _stack() is not None:
        try:
            low = _open(folder)
        except OSError:
            low = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)  # the parent's file is not ours to write into
        try:
            # faulthandler knows its files by number: nothing is registered anew, and a handler of the user's stays.
            os.dup2(low, _stack_fd, inheritable=False)  # type: ignore[arg-type]
        finally:
            os.close(low)
        _stack_file = _identity(_stack_fd)
    if _pid is not None and _pid != os.getpid():
        if _pipe_fd is not None and _identity(_pipe_fd) == _pipe_file:
            os.close(_pipe_fd)
        _pid = _pipe_fd = None
        _idents.clear()


def _stack():
    """The descriptor of this process's stack file; None where it is not there, or no longer ours."""
    return _stack_fd if _stack_fd is not None and _identity(_stack_fd) == _stack_file else None


def _open(folder):
    path = os.path.join(folder, "%d.stacks" % os.getpid())
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _high(low):
    """A second descriptor for the same file, as high as the limit on open files lets it be."""
    import fcntl
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    start = _FD_FROM if soft == resource.RLIM_INFINITY else min(_FD_FROM, soft - 16)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, max(3, start))
    except OSError:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)


def _identity(fd):
    try:
        facts = os.fstat(fd)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


# --- through the thread ----------------------------------------------------------------------------------------------


def start(folder):
    """Make the pipe and the thread, once in each process."""
    global _pid, _pipe_fd, _pipe_file
    if _pid == os.getpid() or _stack() is None:
        return
    _pid = os.getpid()
    path = os.path.join(folder, "%d.ask" % _pid)
    try:
        os.unlink(path)  # of another process, long gone, that had the same number
    except FileNotFoundError:
        pass
    os.mkfifo(path, 0o600)
    # Opened for both, it is never at its end, however many have asked and gone.
    low = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _pipe_fd = _high(low)
    finally:
        os.close(low)
    _pipe_file = _identity(_pipe_fd)
    threading = sys.modules.get("threading")
    _idents[_pid] = threading.main_thread().ident if threading is not None else _thread.get_ident()
    _thread.start_new_thread(_serve, (_pipe_fd, _pipe_file))


def meet():
    """Called in a thread that may be asked for by the kernel's number."""
    _idents[_thread.get_native_id()] = _thread.get_ident()


def _serve(fd, known):
    # Signals are for the user's threads: one that came here would not wake the main thread from its sleep.
    own = {getattr(signal, name) for name in _SYNCHRONOUS if hasattr(signal, name)}
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - own)
    while True:
        try:
            if _identity(fd) != known:
                return  # the script has closed it, and may be using its number
            asked = os.read(fd, 4096)
            if not asked:
                return
            for word in dict.fromkeys(asked.split()):  # once, however often one has asked meanwhile
                _answer(word)
        except OSError:
            return
        except Exception:
            pass  # a question that can't be answered; nothing of the user's has been touched


def _answer(word):
    """Write the stack of one thread, or of all with the main one last, as faulthandler would."""
    out = _stack()
    if out is None:
        return
    mine, main = _thread.get_ident(), _idents.get(os.getpid())
    if word == b"all":
        found = [
            (one, _places(frame)) for one, frame in list(sys._current_frames().items())[:_MAX_THREADS] if one != mine
        ]
        found.sort(key=lambda pair: pair[0] == main)
        heads = ["Thread 0x%016x (most recent call first):" % one for one, _ in found]
        stacks = [places for _, places in found]
    else:
        heads = ["Stack (most recent call first):"]  # and nothing else, of a thread that is gone
        stacks = [_places(sys._current_frames().get(_idents.get(int(word), 0)))]
    lines = []
    for head, places in zip(heads, stacks):  # noqa: B905
        lines.append(head)
        for code, line in places:
            name = code.co_filename.replace("\n", "?")
            lines.append('  File "%s", line %s in %s' % (name, line, code.co_name))
    os.write(out, ("\n".join(lines) + "\n").encode("ascii", "backslashreplace"))


def _places(frame):
    """Code and line of each frame; the frames themselves are let go at once."""
    found = []
    while frame is not None and len(found) < _MAX_DEPTH:
        found.append((frame.f_code, frame.f_lineno or "???"))
        frame = frame.f_back
    return found
