"""What the process can still say when it ends by itself: the uncaught exception, or who called exit."""

import os
import sys

from .user_frame import is_user_file, place, place_of, user_frame


def _frames(traceback):
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        entry = place_of(code.co_filename, traceback.tb_lineno, code.co_name)
        entry["user"] = is_user_file(code.co_filename)
        frames.append(entry)
        traceback = traceback.tb_next
    return frames[-40:]


def _describe(error):
    try:
        text = str(error)
    except Exception:
        text = "(its message could not be read)"
    return {"type": type(error).__qualname__, "module": type(error).__module__, "message": text[:4000]}


def describe(error, above):
    """An exception on its way, with the frames that it has passed and, before them, the user's own still above."""
    fields = _describe(error)
    waiting = []
    frame = sys._getframe(above)
    while frame is not None and len(waiting) < 20:
        if is_user_file(frame.f_code.co_filename):
            waiting.insert(0, dict(place(frame), user=True))
        frame = frame.f_back
    fields["frames"] = waiting + _frames(error.__traceback__)
    return fields


def uncaught():
    """The exception that ended the main thread, read after the interpreter has printed it; None when there is none."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or not isinstance(error, BaseException):
        return None
    fields = _describe(error)
    fields["frames"] = _frames(getattr(sys, "last_traceback", None) or error.__traceback__)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    chain = []
    while cause is not None and len(chain) < 5:
        chain.append(dict(_describe(cause), frames=_frames(cause.__traceback__)))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    if chain:
        fields["chain"] = chain
    return fields


def _still_interrupted():
    """Have the process end by SIGINT, as it was about to.

    Python notes that a KeyboardInterrupt was not handled, and forgets it when a text is evaluated afterwards. Modules
    do that while they are imported, the ones that we need to speak among them. A text that raises it brings it back.
    """
    try:
        eval("interrupt()", {"interrupt": _interrupt})
    except KeyboardInterrupt:
        pass


def _interrupt():
    raise KeyboardInterrupt


class ExitHooks:
    """Speaks at exit. Hooks nothing that the script could see: the interpreter leaves the exception in `sys`."""

    def __init__(self, say, guard):
        self.say = say
        self.guard = guard
        self.pid = os.getpid()
        self.last_acts = []
        self.exit_called = []  # called with the user's frame that calls for the exit
        self._watching = False

    def at_exit(self):
        if os.getpid() != self.pid:
            return
        for act in self.last_acts:
            act()
        fields = uncaught()
        if fields is not None:
            self.say("exception", main=True, **fields)
            if fields["type"] == "KeyboardInterrupt" and not hasattr(sys, "ps1"):
                _still_interrupted()

    def watch_exit_calls(self):
        """Note who calls `sys.exit` or `os._exit` from the user's own code; both still do just what they did."""
        if self._watching:
            return  # several frameworks in one process: once is enough
        self._watching = True
        sys_exit, os_exit = sys.exit, os._exit
        say, guard = self.say, self.guard

        def exit(status=None, /):  # noqa: A001
            """Exit the interpreter by raising SystemExit(status)."""
            try:
                frame = user_frame()
                for act in self.exit_called:
                    act(frame)
                say("exit-called", status=str(status)[:200], **place(frame))
            except Exception as error:
                guard.caught("sys.exit", error)
            return sys_exit(status)

        def _exit(status):
            """Exit to the system with specified status, without normal exit processing."""
            try:
                if is_user_file(sys._getframe(1).f_code.co_filename):
                    say("exit-called", status=str(status)[:200], **place(user_frame()))
            except Exception as error:
                guard.caught("os._exit", error)
            return os_exit(status)

        sys.exit = exit
        os._exit = _exit
