"""The one guard around all of ours inside the training process: errors are counted and reported, never raised."""

_MAX_REPORTED = 20
_HANDLED = ("SIGALRM", "SIGCHLD", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGVTALRM", "SIGPROF")


def of_a_handler(error):
    """True for what a signal handler raised while it interrupted us: an error of the script's, not ours to keep."""
    try:
        # Built in: a process that has run out of files can import no other.
        import _signal  # type: ignore[import-not-found]

        handlers = (_signal.getsignal(getattr(_signal, name)) for name in _HANDLED if hasattr(_signal, name))
        codes = [getattr(handler, "__code__", None) for handler in handlers]
        codes = [code for code in codes if code is not None]
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return True
            trace = trace.tb_next
    except Exception:
        pass
    return False


class Guard:
    """Counts our own errors; the first are reported in words."""

    def __init__(self, say, words=None):
        self.say = say
        self.words = words
        self.count = 0

    def caught(self, where, error):
        """Note an error of ours; called from `except` blocks. What a signal handler of the script's raised goes on."""
        if of_a_handler(error):
            raise error
        try:
            self.count += 1
            if self.words is not None:
                from ...record.ring_format import W_ERRORS

                self.words[W_ERRORS] = self.count
            if self.count <= _MAX_REPORTED:
                self.say("guest-error", where=where, error="%s: %s" % (type(error).__name__, str(error)[:300]))
        except Exception:
            pass

    def __call__(self, function):
        """Wrap a function of ours that runs rarely; hot paths carry their own `try`."""

        name = getattr(function, "__name__", type(function).__name__)

        def guarded(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.caught(name, error)
                return None

        return guarded
