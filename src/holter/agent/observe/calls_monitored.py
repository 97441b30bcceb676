"""The calls of one step, counted by `sys.monitoring`: Python 3.12 and later, where it touches no frame."""

import sys
from threading import get_ident
from time import monotonic
from types import FunctionType, MethodType

from ..core.user_frame import is_user_file

_MONITORING = getattr(sys, "monitoring", None)
_TOOLS = (4, 3)  # ids that no debugger, coverage or profiler of the standard library takes
_CALLS = 200_000  # events of one look: less than two tenths of a second of ours


class Calls:
    """Counts while it is on; `lines` and `ran` are of (code, line)."""

    def __init__(self, ops, roots):
        self.ops_named = ops
        self.roots = roots
        self.tool = None

    def begin(self):
        """Start counting; False where others watch already, or no id is free."""
        monitoring = _MONITORING
        if sys.getprofile() is not None:
            return False
        self.tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
        if self.tool is None:
            return False
        self.thread, self.paused, self.cut = get_ident(), False, False
        self.calls = self.ops = 0
        self.began, self.watched = monotonic(), 0.0
        self.sites, self.ran = {}, {}
        monitoring.use_tool_id(self.tool, "a look at one step")
        monitoring.register_callback(self.tool, monitoring.events.CALL, self._saw)
        monitoring.restart_events()
        monitoring.set_events(self.tool, monitoring.events.CALL)
        return True

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False

    def end(self):
        """Stop counting."""
        tool, self.tool = self.tool, None
        if tool is not None:
            monitoring = _MONITORING
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, monitoring.events.CALL, None)
            monitoring.free_tool_id(tool)

    @property
    def lines(self):
        found, starts = {}, {}
        for (code, offset), n in self.sites.items():
            known = starts.get(code)
            if known is None:
                known = starts[code] = list(code.co_lines())
            line = next((line for first, last, line in known if first <= offset < last), None)
            if line is not None:
                found[code, line] = found.get((code, line), 0) + n
        return found

    def _saw(self, code, offset, function, _first):
        try:
            if get_ident() != self.thread or self.paused:
                return None
            self.calls += 1
            if self.calls >= _CALLS:
                self.cut, self.watched = True, monotonic() - self.began
                self.end()
                return None
            if is_user_file(code.co_filename):
                if self._counts(function):
                    self.sites[code, offset] = self.sites.get((code, offset), 0) + 1
                return None
            if getattr(function, "__name__", None) not in self.ops_named:
                return _MONITORING.DISABLE
            self.ops += 1
            frame = sys._getframe(1)
            while frame is not None and not is_user_file(frame.f_code.co_filename):
                frame = frame.f_back
            if frame is not None:
                key = frame.f_code, frame.f_lineno
                self.ran[key] = self.ran.get(key, 0) + 1
        except Exception:
            self.end()
        return None

    def _counts(self, function):
        """A call that leaves the user's own code: into a library's function, a module, or a framework's builtin."""
        if isinstance(function, MethodType):
            function = function.__func__
        if isinstance(function, FunctionType):
            return not is_user_file(function.__code__.co_filename)
        if isinstance(function, type):
            return False
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None) or (type(owner).__module__ if owner is not None else "")
        known = isinstance(module, str) and module.partition(".")[0] in self.roots
        return known or hasattr(type(function), "named_parameters")  # a model of the user's own
