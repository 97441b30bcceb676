"""Answers when Holter asks a process that runs for its stacks: a thread of ours that reads them with the GIL held.

faulthandler reads frames from within a signal, wherever the thread stands just then. A frame that is being entered at
that moment is half made, and reading it crashes the process: a loop with many calls from C into Python dies of about a
hundred such questions. Under the GIL no frame moves. So a thread waits for questions at a pipe of its own, costs
nothing until one comes, and answers within microseconds while the others compute or wait. One that gets no GIL gives no
answer: then it is held in compiled code, no frame moves either, and faulthandler may be asked.

It is not one of `threading`'s: a script that joins or counts all threads does not meet it.
"""

import _signal as signal  # type: ignore[import-not-found]  # without the names: they load half a dozen modules
import _thread
import os
import sys

from . import stack_dump

_DEEP = 200  # frames of one thread
_THREADS = 64

_OWN = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")  # those that a thread brings upon itself

_pid = None  # of the process in which the thread was started
_fd = _known = None  # the pipe, and what it leads to: the script may have closed it and be using its number
idents = {}  # the kernel's number of a thread -> Python's, for those that have told theirs


def start(folder):
    """Make the pipe and the thread, once in each process."""
    global _pid, _fd, _known
    if _pid == os.getpid() or stack_dump.file() is None:
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
        _fd = stack_dump.high(low)
    finally:
        os.close(low)
    _known = stack_dump.identity(_fd)
    idents[_pid] = _main()
    _thread.start_new_thread(_serve, (_fd, _known))


def born_of_fork():
    """In a forked child the thread is gone, and the pipe is the parent's."""
    global _pid, _fd
    if _pid is None or _pid == os.getpid():
        return
    if _fd is not None and stack_dump.identity(_fd) == _known:
        os.close(_fd)
    _pid = _fd = None
    idents.clear()


def meet():
    """Called in a thread that may be asked for by the kernel's number."""
    idents[_thread.get_native_id()] = _thread.get_ident()


def _main():
    threading = sys.modules.get("threading")
    return threading.main_thread().ident if threading is not None else _thread.get_ident()


def _serve(fd, known):
    # Signals are for the user's threads: one that came here would not wake the main thread from its sleep.
    own = {getattr(signal, name) for name in _OWN if hasattr(signal, name)}
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - own)
    while True:
        try:
            if stack_dump.identity(fd) != known:
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
    out = stack_dump.file()
    if out is None:
        return
    mine, main = _thread.get_ident(), idents.get(os.getpid())
    if word == b"all":
        found = [(one, _places(frame)) for one, frame in list(sys._current_frames().items())[:_THREADS] if one != mine]
        found.sort(key=lambda pair: pair[0] == main)
        heads = ["Thread 0x%016x (most recent call first):" % one for one, _ in found]
        stacks = [places for _, places in found]
    else:
        heads = ["Stack (most recent call first):"]  # and nothing else, of a thread that is gone
        stacks = [_places(sys._current_frames().get(idents.get(int(word), 0)))]
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
    while frame is not None and len(found) < _DEEP:
        found.append((frame.f_code, frame.f_lineno or "???"))
        frame = frame.f_back
    return found
