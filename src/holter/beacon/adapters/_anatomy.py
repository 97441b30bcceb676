"""What one step is made of: now and then a single step is watched, and the calls on each of the user's lines counted.

A step of thousands of tiny operations spends its time between them, where no counter looks. Python's own profile hook
counts the calls of one step in the thread that trains, and is taken off again at the step's end, or before when the
step has more calls than can be counted cheaply. Where another profiler is at work, nothing is done.
"""

import os
from sys import _getframe, getprofile, setprofile, version_info
from time import monotonic

from ..holdings_walk import locals_of
from ..user_frame import is_user_file, place_of

_FIRST = 2.0  # seconds of training before the first look, so that nothing is still warming up
_PAUSES = (4.0, 15.0, 60.0)  # between looks; the last one for good
_CALLS = 200_000  # events of one look: less than two tenths of a second of ours
_LINES = 6
_NODES = 20_000
_OPS = frozenset(("TFE_Py_FastPathExecute", "TFE_Py_Execute"))  # each runs one operation of TensorFlow eagerly
_FRAMEWORKS = ("torch", "tensorflow", "keras")
# Before Python 3.13 the hook leaves a copy of its local variables with every frame that it was called for.
_LEAVES_COPIES = version_info < (3, 13)
_GENERATOR = 0x20
_SUSPENDED = 64


def anatomy_of(guest):
    """The one of this process, made by whichever adapter comes first."""
    look = getattr(guest, "anatomy", None)
    if look is None:
        look = guest.anatomy = Anatomy(guest)
    return look


class Anatomy:
    """Looks at a step once in a while; `on` is true only within such a step."""

    def __init__(self, guest):
        self.guest = guest
        self.on = False
        self.looks = 0
        self.next = 0.0
        self.facts = {}  # what adapters know of the loop, told with each look
        self.aside = set()  # codes that fetch data: what is called in there is no part of the computation
        self._clear()
        os.register_at_fork(after_in_child=self.end)
        guest.farewell.last_acts.insert(0, guest.guard(self.end))

    def end(self):
        """Leave a look that is under way: at the process's end, and in a forked child, where it is the parent's."""
        self._off()
        self.on = False

    def _clear(self):
        self.calls = self.ops = self.nodes = self.within = 0
        self.lines, self.kinds, self.users = {}, {}, {}
        self.ran = {}  # line -> operations of TensorFlow that were run from it, through however many calls
        self.sizes = []
        self.suspended = []  # frames of generators that wait for their next turn
        self.cut = False
        self.watched = 0.0

    # --- when ---------------------------------------------------------------------------------------------

    def rarely(self):
        """About once a second, at a step's end: begin a look when it is time for one."""
        now = monotonic()
        if not self.next:
            self.next = now + _FIRST
        if self.on or now < self.next or getprofile() is not None:
            return
        self.next = now + _PAUSES[min(self.looks, len(_PAUSES) - 1)]
        self.looks += 1
        self._clear()
        self.first_step = self.guest.beat.steps
        self.began = monotonic()
        self.on = True
        setprofile(self._saw)

    def step_ended(self):
        """The end of the step that is looked at."""
        self._off()
        self.on = False
        if _LEAVES_COPIES:
            self._forget(_getframe(1))
        took = monotonic() - self.began
        steps = self.guest.beat.steps - self.first_step
        if steps <= 0:
            return
        keys = sorted(
            set(self.lines) | set(self.ran), key=lambda key: -max(self.lines.get(key, 0), self.ran.get(key, 0))
        )
        lines = [(key, self.lines.get(key, 0), self.ran.get(key, 0)) for key in keys[:_LINES]]
        kinds = sorted(self.kinds.items(), key=lambda item: -item[1])[:_LINES]
        self.guest.say(
            "anatomy",
            step=self.guest.beat.steps,
            steps=steps,
            calls=self.calls,
            ops=self.ops,
            nodes=self.nodes,
            elements=self._usual_size(),
            kinds=[[name, n] for name, n in kinds],
            lines=[
                dict(place_of(code.co_filename, line, code.co_name), calls=calls, ops=ops)
                for (code, line), calls, ops in lines
            ],
            watched=round(self.watched if self.cut else took, 4),
            took=round(took, 4),
            **self.facts,
        )
        self._clear()

    def _forget(self, frame):
        """Empty the copies of local variables: what the script lets go must not live on in them.

        Never while the hook is on: what is missing in a copy would then be missing in the script.
        """
        while frame is not None:
            locals_of(frame)
            frame = frame.f_back
        while self.suspended:
            locals_of(self.suspended.pop())

    def _off(self):
        if getprofile() == self._saw:
            setprofile(None)

    # --- what ---------------------------------------------------------------------------------------------

    def _saw(self, frame, event, arg, off=setprofile):  # bound: at the end of the interpreter globals are gone
        try:
            self.calls += 1
            if self.calls >= _CALLS:
                self.cut = True
                self.watched = monotonic() - self.began
                self._off()
                return
            if event == "call":
                code = frame.f_code
                if code in self.aside:
                    self.within += 1
                elif not self.within:
                    caller = frame.f_back
                    if caller is not None and self._is_user(caller.f_code) and not self._is_user(code):
                        self._count(caller)
            elif event == "c_call":
                if self.within:
                    return
                if arg.__name__ in _OPS:
                    self.ops += 1
                    while frame is not None and not self._is_user(frame.f_code):
                        frame = frame.f_back
                    if frame is not None:
                        key = frame.f_code, frame.f_lineno
                        self.ran[key] = self.ran.get(key, 0) + 1
                elif self._is_user(frame.f_code) and _of_framework(arg):
                    self._count(frame)
            elif event == "return":
                if frame.f_code in self.aside:
                    self.within -= 1
                if frame.f_code.co_flags & _GENERATOR and _LEAVES_COPIES and len(self.suspended) < _SUSPENDED:
                    self.suspended.append(frame)
        except Exception as error:
            off(None)
            self.guest.guard.caught("anatomy", error)

    def _is_user(self, code):
        known = self.users.get(code)
        if known is None:
            file = code.co_filename  # code that libraries make of text is called <string>
            known = self.users[code] = is_user_file(file) and not file.startswith(("<string", "<attrs", "<eval"))
        return known

    def _count(self, frame):
        key = frame.f_code, frame.f_lineno
        self.lines[key] = self.lines.get(key, 0) + 1

    def _measure(self, node):
        """Note how many numbers a node gives, where this PyTorch says it."""
        for given in getattr(node, "_input_metadata", ())[:1]:
            self.sizes.append(_elements(given.shape))

    def _usual_size(self):
        return sorted(self.sizes)[len(self.sizes) // 2] if self.sizes else None

    def graph(self, tensor):
        """Count the nodes of a PyTorch graph by their kind, parameters left out."""
        first = tensor.grad_fn
        if first is None:
            return
        seen, waiting, kinds = {first}, [first], self.kinds
        while waiting and len(seen) < _NODES:
            node = waiting.pop()
            name = node.name()
            if "AccumulateGrad" not in name:
                self.nodes += 1
                kinds[name] = kinds.get(name, 0) + 1
                if self.nodes < 64 or not self.nodes & 15:
                    self._measure(node)
            for parent, _ in node.next_functions:
                if parent is not None and parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)


def _elements(shape):
    n = 1
    for size in shape:
        n *= int(size)
    return n


def _of_framework(builtin):
    """True for a function of a framework's compiled part, or a method of one of its tensors."""
    owner = getattr(builtin, "__self__", None)
    module = getattr(builtin, "__module__", None) or (type(owner).__module__ if owner is not None else "")
    return isinstance(module, str) and module.partition(".")[0] in _FRAMEWORKS
