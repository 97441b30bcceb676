"""Walks from the user's own variables to what they hold, and notes by name what may grow.

Nothing of the user's is called on the way: attributes are read from instance dicts, containers through the methods of
the built-in types. What belongs to libraries is followed two objects deep and no further.
"""

import functools
import gc
import sys
import types
from collections import deque
from itertools import islice
from time import thread_time as clock

from ..core import frame_locals
from ..core.guard import of_a_handler
from ..core.user_frame import is_user_file
from .own_memory import resident_share
from .size import Weigher, held_by, len_of, sample

_MAX_WALKED_ENTRIES = 64  # containers up to this length are walked through, of larger ones only a sample is weighed
_FEW_ENTRIES = 4
_MAX_LIBRARY_HOPS = 2
_DEPTH = 12
_TEXT = 1 << 16
_ARRAY = 1 << 16
_MAYBE_UNTOUCHED_BYTES = 4 << 20  # memory that was asked for and never touched is not held
_CONTAINERS = (list, dict, set, frozenset, deque, tuple)
_SKIPPED = frozenset((
    int, float, complex, bool, type(None), type(Ellipsis), types.BuiltinFunctionType, types.CodeType, property,
    types.FrameType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MappingProxyType, range, slice,
    types.TracebackType, classmethod, staticmethod, types.WrapperDescriptorType,
))  # fmt: skip
_LRU = functools._lru_cache_wrapper


class Spot:
    """Where a thing was found: its name as a person writes it, and the variable, owner and file behind the name."""

    __slots__ = ("file", "foreign", "line", "name", "owner", "scope", "variable")

    def __init__(self, name, variable, scope, owner, file, line=0, foreign=0):
        self.name = name
        self.variable = variable
        self.scope = scope
        self.owner = owner
        self.file = file
        self.line = line
        self.foreign = foreign  # objects of libraries that lie between this and the user's own

    def element(self, key):
        shown = repr(key) if key.__class__ in (str, int) else "…"
        return Spot(self.name + "[" + shown[:40] + "]", self.variable, self.scope, self.owner, self.file, self.line,
                    self.foreign)  # fmt: skip


class Note:
    """What was found at a spot."""

    __slots__ = ("also", "bound", "estimate", "holds", "keys", "length", "nodes", "spot", "type")

    def __init__(self, spot, kind, length, estimate, bound=0, nodes=0, keys=""):
        self.spot = spot
        self.type = kind
        self.length = length
        self.estimate = estimate
        self.bound = bound
        self.nodes = nodes
        self.keys = keys
        self.also = []
        self.holds = False  # several things, that is: a container


class Walk:
    """One walk, breadth first, until all is seen or the time is over."""

    def __init__(self, kinds, most, deadline):
        self.kinds = kinds
        self.weigher = Weigher(kinds)
        self.most = most
        self.deadline = deadline
        self.notes = {}  # id of the thing -> Note
        self.seen = {}  # id -> True; only valid during the walk, while the things are alive
        self.visited = 0
        self.complete = True
        self.queue = deque()
        self.graphs = 0  # variables whose graph was followed
        self.bound = 0  # the length of the dataset that is being walked, for caches in it

    def push(self, thing, spot, depth=0):
        if thing.__class__ not in _SKIPPED:
            self.queue.append((thing, spot, depth))

    def run(self):
        queue, seen = self.queue, self.seen
        while queue:
            thing, spot, depth = queue.popleft()
            number = id(thing)
            if number in seen:
                note = self.notes.get(number)
                if note is not None and len(note.also) < 4 and spot.variable != note.spot.variable:
                    note.also.append(spot.variable)
                continue
            seen[number] = True
            self.visited += 1
            if self.visited > self.most or (not self.visited % 16 and clock() > self.deadline):
                self.complete = False
                break
            try:
                self._visit(thing, spot, depth)
            except Exception as error:
                if of_a_handler(error):
                    raise
                continue  # changed by another thread meanwhile, or an object that can't be read
        queue.clear()
        seen.clear()

    def _visit(self, thing, spot, depth):
        cls = thing.__class__
        if cls in (str, bytes, bytearray):
            if len(thing) >= _TEXT:
                self._note(thing, spot, cls.__name__, len(thing), self.weigher.estimate([self.weigher.load(thing)], 1))
            return
        if isinstance(thing, _CONTAINERS):
            self._container(thing, spot, depth)
            return
        if cls.__module__ == "numpy" and hasattr(thing, "nbytes"):
            if thing.nbytes >= _ARRAY or getattr(thing.dtype, "hasobject", False):
                self._array(thing, spot)
            return
        for kind in self.kinds:
            if kind.visit(self, thing, cls, spot, depth):
                return
        if depth >= _DEPTH:
            return
        if isinstance(thing, types.FunctionType):
            self._function(thing, spot, depth)
        elif cls is _LRU:
            self._memo(thing, spot, depth)
        elif cls is types.MethodType:
            self.push(thing.__self__, spot, depth + 1)
            self.push(thing.__func__, spot, depth + 1)
        elif isinstance(thing, functools.partial):
            for part in (thing.func, thing.args, thing.keywords):
                self.push(part, spot, depth + 1)
        elif isinstance(thing, types.GeneratorType):
            if thing.gi_frame is not None:
                self.frame(thing.gi_frame, depth + 1)
        elif isinstance(thing, type):
            if is_user_class(thing):
                self._class(thing, depth)
        elif not isinstance(thing, types.ModuleType):
            self._object(thing, cls, spot, depth)

    # --- what may grow ------------------------------------------------------------------------------------

    def _container(self, thing, spot, depth):
        n = len_of(thing)
        if not n:
            return
        keys = ""
        if isinstance(thing, dict):
            keys = next(iter(dict.__iter__(thing))).__class__.__name__
        estimate = self.weigher.container(thing, n)
        if not isinstance(thing, tuple) or estimate.host + estimate.device >= _ARRAY:
            bound = (thing.maxlen if type(thing) is deque else None) or self.bound
            self._note(thing, spot, type(thing).__name__, n, estimate, bound, keys).holds = True
        if depth >= _DEPTH:
            return
        if n <= _MAX_WALKED_ENTRIES:
            if isinstance(thing, dict):
                named = list(dict.items(thing))
            else:
                named = list(enumerate(sample(thing, _MAX_WALKED_ENTRIES)[0]))
            for key, value in named:
                # Of many tensors or models each has been weighed with the others; few may be states with names.
                if n <= _FEW_ENTRIES or leads_on(value):
                    self.push(value, spot.element(key), depth + 1)

    def _array(self, array, spot):
        load = self.weigher.load(array)
        if load.plain > 4096 or array.base is None:  # a view is told under the name of what it looks at
            estimate = self.weigher.estimate([load], 1, [array])
            # What an array of objects holds lies elsewhere: nothing can be told from the pages after its own.
            address = 0 if array.dtype.hasobject else array.__array_interface__["data"][0]
            self.note_array(array, spot, estimate, int(array.size), address)

    def _memo(self, memo, spot, depth):
        info = memo.cache_info()
        inner = getattr(memo, "__wrapped__", None)
        code = getattr(inner, "__code__", None)
        if code is not None and info.currsize:
            here = Spot(code.co_name, code.co_name, "cache", "", code.co_filename, code.co_firstlineno)
            parts = []
            for part in gc.get_referents(memo) if info.currsize < 200_000 else ():
                if part.__class__ is dict and len(part) == info.currsize and info.maxsize is None:
                    parts = [part]
                    break
                if part.__class__ is not type and len(parts) < 64 and part is not inner and part.__class__ is not dict:
                    parts.append(part)
            if parts and parts[0].__class__ is dict:
                estimate = self.weigher.container(parts[0], info.currsize)
            else:  # keys and results in turn
                estimate = self.weigher.estimate([self.weigher.load(part) for part in parts[:16]], 2 * info.currsize)
            self._note(memo, here, "lru_cache", info.currsize, estimate, info.maxsize or 0).holds = True
        if inner is not None:
            self.push(inner, spot, depth + 1)

    def _note(self, thing, spot, kind, length, estimate, bound=0, keys="", nodes=0):
        note = self.notes[id(thing)] = Note(spot, kind, length, estimate, bound, nodes, keys)
        return note

    def note_array(self, thing, spot, estimate, length, address=0, nodes=0):
        """One array in a variable: it may itself get larger, the graph behind it, or the part that has been used."""
        bound = 0
        if estimate.host >= _MAYBE_UNTOUCHED_BYTES and address and not nodes:
            used = resident_share(address, estimate.host)
            if used is not None and used < 0.95:
                bound, length, estimate.host = length, int(used * length), int(used * estimate.host)
        self._note(thing, spot, type(thing).__name__, length, estimate, bound, nodes=nodes)

    # --- what leads further -------------------------------------------------------------------------------

    def _function(self, function, spot, depth):
        code = function.__code__
        if not is_user_file(code.co_filename) and spot.foreign >= _MAX_LIBRARY_HOPS:
            return
        where, line = code.co_filename, code.co_firstlineno
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):  # noqa: B905 - not in Python 3.9
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not set yet
            self.push(value, Spot(name, name, "closure", code.co_name, where, line, spot.foreign), depth + 1)
        names = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        named = dict(zip(names[len(names) - len(defaults) :], defaults))  # noqa: B905
        for name, value in (*named.items(), *(function.__kwdefaults__ or {}).items()):
            self.push(value, Spot(name, name, "default", code.co_name, where, line, spot.foreign), depth + 1)
        for name, value in list(function.__dict__.items()):
            self.push(value, Spot(code.co_name + "." + name, name, "attribute", code.co_name, where, line,
                                  spot.foreign), depth + 1)  # fmt: skip

    def _class(self, cls, depth):
        file = file_of_class(cls)
        for name, value in list(vars(cls).items()):
            if name.startswith("__"):
                continue
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            self.push(value, Spot(cls.__name__ + "." + name, name, "class", cls.__name__, file), depth + 1)

    def _object(self, thing, cls, spot, depth):
        own = is_user_class(cls)
        foreign = 0 if own else spot.foreign + 1
        if foreign > _MAX_LIBRARY_HOPS:
            return
        held = held_by(thing)
        if len(held) > 2000:
            return
        file = file_of_class(cls) if own else spot.file
        owner = cls.__name__
        for name, value in list(held.items()):
            if value.__class__ in _SKIPPED or name.__class__ is not str:
                continue
            self.push(value, Spot(spot.name + "." + name, name, "attribute", owner, file, 0, foreign), depth + 1)
        if own:
            for base in cls.__mro__:
                if is_user_class(base):
                    self.push(base, spot, depth + 1)
        if len(held) < 8 and cls.__module__ in ("builtins", "itertools"):
            for part in islice(gc.get_referents(thing), 8):  # an iterator, and what it goes over
                self.push(part, spot, depth + 1)

    def frame(self, frame, depth=0):
        """The variables of a frame, and for one of a library's only what may be the user's."""
        code = frame.f_code
        own = is_user_file(code.co_filename)
        for name, value in frame_locals.read(frame).items():
            if value.__class__ in _SKIPPED:
                continue
            if own:
                self.push(value, Spot(name, name, "local", code.co_name, code.co_filename), depth)
            elif name in ("self", "callbacks", "dataset") or is_user_class(value.__class__):
                self.push(value, Spot(name, name, "local", code.co_name, code.co_filename, 0, 1), depth)


_user_classes = {}


def is_user_class(cls):
    """True for a class that the user's own files define; known by its module's name, so that no class is kept."""
    name = getattr(cls, "__module__", None)
    known = _user_classes.get(name)
    if known is None:
        module = sys.modules.get(name) if isinstance(name, str) else None
        file = vars(module).get("__file__") if module is not None else None
        known = name in ("__main__", "__mp_main__") or (isinstance(file, str) and is_user_file(file))
        if len(_user_classes) < 5000:
            _user_classes[name] = known
    return known


def file_of_class(cls):
    module = sys.modules.get(cls.__module__)
    return (vars(module).get("__file__") if module is not None else None) or ""


def leads_on(thing):
    """True for what may hold something with a name of its own: containers, functions, objects of the user's."""
    return isinstance(thing, _CONTAINERS + _CALLED) or is_user_class(thing.__class__)


_CALLED = (types.FunctionType, types.MethodType, types.GeneratorType, functools.partial, _LRU)
_packages = {}


def user_modules():
    """The user's own modules, the script first; of a package its top decides for all that lies in it."""
    found = []
    for name in list(sys.modules):
        module = sys.modules.get(name)
        top = name.partition(".")[0]
        known = _packages.get(top)
        if known is None:
            package = sys.modules.get(top)
            held = vars(package) if isinstance(package, types.ModuleType) else {}  # a lazy one must not be woken
            if held.get("__file__").__class__ is str:
                known = _packages[top] = is_user_file(held["__file__"])
            elif top not in ("__main__", "__mp_main__") and "__path__" not in held:
                known = _packages[top] = False  # built in
        if known is False or not isinstance(module, types.ModuleType):
            continue
        held = vars(module)
        file = held.get("__file__")
        if name in ("__main__", "__mp_main__") or (file.__class__ is str and is_user_file(file)):
            found.insert(0 if name == "__main__" else len(found), (held, file or ""))
    return found
