"""What `torch.compile` and `torch.jit.trace` make again and again, with the reason that the compiler itself gives.

Dynamo enters `convert_frame._compile` once for each compilation of a frame, first argument the frame's code, in every
release since 2.2; the guards that failed are by then in its own table `guard_failures`. Calls that find compiled code
never come here.
"""

import functools
import re
import sys
import weakref
from time import monotonic

from ...core.creation_sites import site_of
from ...core.user_frame import is_user_file, user_frame
from ...observe.retraces import CLOSURE, SCALAR, SHAPE, Retraces
from ...observe.wrap import drop_own_frame

_CODES = 1000
_LIMIT = re.compile(r"(?:recompile|cache)[ _a-z]*limit", re.IGNORECASE)
_SIZES = re.compile(
    r"tensor '(.+?)' (?:size|stride|rank|dtype|dispatch key set|requires_grad).*?mismatch"
    r".*?expected (.+?)[,.]? actual (.+?)(?:\s+#|\n|$)"
)
_NAME = re.compile(r"[LG]\['(\w+)'\]")
_EQUAL = re.compile(r"^(?:\(\()?\s*([\w.\[\]'\"]+?)\s*(?:==|is|!=)\s*(.+?)\s*(?:#|$)", re.MULTILINE)
_USED = re.compile(r"#\s*(?:\S[^#\n]*#\s*)?(\S+):(\d+) in (\S+)")
_OTHER = re.compile(r"___check_obj_id|___check_type_id|BACKEND_MATCH|object id|\bid\(|weakref|Cache line invalidated")
_SIZE = re.compile(r"([\w.\[\]'\"]+?)\.size\(\)\[|([\w.\[\]'\"]+?)\.shape|___check_tensors")


class Compiles:
    """Counts compilations by the frame's own line, a library's frame by the user's line that called it."""

    def __init__(self, agent, torch):
        self.agent = agent
        self.torch = torch
        self.ledger = Retraces(agent)
        self.known = {}  # id of a code -> how many of its failed guards were read
        self.makers = {}  # id of a code -> the line that last asked for it to be compiled, how often, for how many
        self.made = {}  # id of an entry -> how often its code had been asked for at its last compilation
        self.depth = 0

    def patch(self):
        self.agent.hook.when_imported("torch._dynamo.convert_frame", self.agent.guard(self._patch_dynamo))
        self._patch_trace()
        self._patch_compile()

    def report(self):
        self.ledger.report()

    def _patch_dynamo(self, convert_frame):
        inner, guard, note = convert_frame._compile, self.agent.guard, self._note

        @functools.wraps(inner)
        def _compile(code, *args, **kwargs):
            began, failed = monotonic(), None
            try:
                return inner(code, *args, **kwargs)
            except BaseException as error:
                failed = error
                drop_own_frame(error)
                raise
            finally:
                try:
                    note(code, monotonic() - began, failed)
                except Exception as error:
                    guard.caught("compile", error)
                failed = None

        convert_frame._compile = _compile

    def _note(self, code, took, failed):
        if failed is not None and not _LIMIT.search(str(failed)[:2000]):
            return  # a graph break or an error of its own: no compilation
        caller = user_frame(2)
        file, line, name = code.co_filename, code.co_firstlineno, code.co_name
        if not is_user_file(file):
            if caller is None:
                return
            file, line = caller.f_code.co_filename, caller.f_lineno
        entry = self.ledger.entry("torch.compile", name, file, line)
        if entry is None:
            return
        reasons = self._new_reasons(code)
        changed = next((found for found in map(explained, reasons) if found[0] != "other"), None)
        maker, made, models, _model = self.makers.get(id(code), (None, 0, 0, None))
        new, new_model = made > self.made.get(id(entry), 0), models > entry.owners
        self.made[id(entry)] = made
        if new and entry.count and not new_model:
            changed = (CLOSURE, changed[1] if changed else "", changed[2] if changed else "")
        if failed is not None:
            self.ledger.given_up(entry, changed)
        else:
            if reasons:
                entry.use = _used_at(reasons[0], code)
            self.ledger.note(entry, took, changed, site_of(caller), maker, new, new_model)

    def _new_reasons(self, code):
        """The guards that did not hold this time: one of each earlier compilation, the latest one's first."""
        failures = getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", None) or {}
        found, known = failures.get(code) or (), self.known.get(id(code), 0)
        if len(self.known) >= _CODES:
            self.known.clear()
        self.known[id(code)] = len(found)
        return found[known:] if known <= len(found) else found[-1:]

    def _patch_compile(self):
        """Where compiled functions are made: in a loop, each is compiled anew."""
        torch, makers, guard = self.torch, self.makers, self.agent.guard
        inner = torch.compile

        @functools.wraps(inner)
        def compiled(model=None, *args, **kwargs):
            try:
                code = _code_of(model)
                frame = user_frame(1) if code is not None else None
                if frame is not None and (id(code) in makers or len(makers) < _CODES):
                    _site, made, models, last = makers.get(id(code), (None, 0, 0, None))
                    if isinstance(model, torch.nn.Module) and (last is None or last() is not model):
                        models, last = models + 1, weakref.ref(model)
                    makers[id(code)] = (site_of(frame), made + 1, models, last)
            except Exception as error:
                guard.caught("torch.compile", error)
            return inner(model, *args, **kwargs)

        torch.compile = compiled

    def _patch_trace(self):
        jit, guard, ledger = self.torch.jit, self.agent.guard, self.ledger
        inner = jit.trace

        @functools.wraps(inner)
        def trace(*args, **kwargs):
            began = monotonic()
            self.depth += 1
            try:
                return inner(*args, **kwargs)
            except BaseException as error:
                drop_own_frame(error)
                raise
            finally:
                self.depth -= 1
                try:
                    frame = user_frame(1)
                    if frame is not None and not self.depth:
                        entry = ledger.entry("torch.jit.trace", "trace", frame.f_code.co_filename, frame.f_lineno)
                        if entry is not None:
                            changed = (CLOSURE, "", "") if entry.count else None
                            ledger.note(entry, monotonic() - began, changed, site_of(frame), site_of(frame), True)
                except Exception as error:
                    guard.caught("jit.trace", error)

        jit.trace = trace


def _code_of(model):
    """The code that is compiled first: a function's own, or that of a model's `forward`."""
    while hasattr(model, "__wrapped__"):
        model = model.__wrapped__
    return getattr(model, "__code__", None) or getattr(getattr(type(model), "forward", None), "__code__", None)


def explained(reason):
    """A reason in Dynamo's words as (kind, argument, example)."""
    reason = reason.partition(": ")[2] or reason
    reason = reason.partition("\nUser stack trace")[0]
    found = _SIZES.search(reason)
    if found:
        return SHAPE, _plain(found[1]), found[3][:60]
    if _OTHER.search(reason):
        name = _NAME.search(reason)
        return CLOSURE, name[1] if name else "", ""
    size = _SIZE.search(reason)
    if size:
        return SHAPE, _plain(size[1] or size[2] or ""), ""
    equal = _EQUAL.search(reason)
    if equal:
        return SCALAR, _plain(equal[1]), equal[2][:40]
    return "other", "", reason[:100]


def _used_at(reason, code):
    """The line that a guard was made for, which Dynamo writes after it, where it lies in the frame's own file."""
    found = _USED.search(reason)
    if found and code.co_filename.endswith(found[1].rpartition("/")[2]):
        return code.co_filename, int(found[2]), found[3]
    return None


def _plain(source):
    """A source such as `L['self'].calls` as a person writes it."""
    return _NAME.sub(r"\1", source).strip("'\"")
