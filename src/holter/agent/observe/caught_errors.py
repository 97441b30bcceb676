"""Errors that the script's own generators and threads catch: an input that ends so ends without a word.

`sys.monitoring` tells of each error that is handled (Python 3.12 and later). Nothing of the user's code is
instrumented, so a run without errors pays nothing, and each error that is handled somewhere costs less than a
microsecond. Whether the `except` says something of it, or raises it again, is read off the source by the diagnosis.
"""

import sys
from threading import current_thread, main_thread

from ..core.exit_hooks import describe
from ..core.user_frame import is_user_file, place_of

_MONITORING = getattr(sys, "monitoring", None)
_TOOL = 3  # no debugger, coverage or profiler of the standard library takes it
_GENERATOR = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR
_EXPECTED = (StopIteration, StopAsyncIteration, GeneratorExit, ImportError, AttributeError)
_MAX_SITES = 20
_MAX_HANDLED = 500_000  # some tenths of a second of ours: a script that lives on errors is left alone


class CaughtErrors:
    """Reports the first two, the tenth, hundredth, ... error that one `except` of the user's catches."""

    def __init__(self, agent):
        self.agent = agent
        self.counts = {}  # by code and line
        self.handled = 0

    def begin(self):
        """Start to listen; without a word where Python is older or another tool has the id."""
        monitoring = _MONITORING
        if monitoring is None or monitoring.get_tool(_TOOL) is not None:
            return
        monitoring.use_tool_id(_TOOL, "errors that are caught")
        monitoring.register_callback(_TOOL, monitoring.events.EXCEPTION_HANDLED, self._caught)
        monitoring.set_events(_TOOL, monitoring.events.EXCEPTION_HANDLED)

    def end(self):
        """Stop listening."""
        _MONITORING.set_events(_TOOL, 0)
        _MONITORING.register_callback(_TOOL, _MONITORING.events.EXCEPTION_HANDLED, None)
        _MONITORING.free_tool_id(_TOOL)

    def _caught(self, code, offset, error):
        try:
            self.handled += 1
            if self.handled > _MAX_HANDLED:
                self.end()
            elif is_user_file(code.co_filename):
                self._of_the_user(code, offset, error)
        except Exception as own:
            self.agent.guard.caught("caught-errors", own)

    def _of_the_user(self, code, offset, error):
        generator, thread = bool(code.co_flags & _GENERATOR), current_thread() is not main_thread()
        if not (generator or thread) or isinstance(error, _EXPECTED) or not isinstance(error, Exception):
            return
        # Where an error is met there is an instruction without a line; the next one is the handler's own.
        site = code, next((line for _, last, line in code.co_lines() if offset < last and line), 0)
        if site not in self.counts and len(self.counts) >= _MAX_SITES:
            return
        count = self.counts[site] = self.counts.get(site, 0) + 1
        if count == 2 or str(count).strip("0") == "1":
            caught = place_of(code.co_filename, site[1], code.co_qualname)
            fields = describe(error, above=4)
            self.agent.say("caught", step=self.agent.beat.steps, count=count, thread=thread, caught=caught, **fields)
