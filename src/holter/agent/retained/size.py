"""How much a thing holds in memory, estimated from a few of its parts and within a time that is set beforehand."""

import sys
from collections import deque
from itertools import islice

_MAX_CHILDREN = 8  # children of one thing that are looked at; the rest is taken to be like them
_DEPTH = 4
_ENDS = 3  # elements from each end of a container, and from its middle
_PLAIN = frozenset((int, float, complex, bool, str, bytes, bytearray, type(None), range, slice))
_SIZED = _PLAIN | {list, tuple, dict, set, frozenset, deque}
_OBJECT = 56
_NODES = 150
_GRAPHS = 3  # graphs that are followed for one container


class Load:
    """What one element holds: blocks of memory by their key, plain Python objects, and an autograd graph."""

    __slots__ = ("blocks", "graph", "kinds", "nodes", "plain", "seen", "shape", "walked")

    def __init__(self):
        self.blocks = {}  # key -> (bytes on the host, bytes on a device)
        self.plain = 0.0
        self.kinds = {}  # what it is made of -> bytes
        self.graph = False
        self.nodes = 0
        self.seen = set()  # nodes of its graphs that were looked at
        self.shape = None  # of the first tensor or array in it
        self.walked = False  # its graph was looked into

    def block(self, key, host, device, kind):
        if key not in self.blocks:
            self.blocks[key] = (host, device)
            self.kinds[kind] = self.kinds.get(kind, 0) + host + device + 1

    def add(self, size, kind):
        self.plain += size
        self.kinds[kind] = self.kinds.get(kind, 0) + size


class Estimate:
    """What a container holds in all: bytes on the host and on a device, the kind of content, whether with a graph."""

    __slots__ = ("device", "element", "graph", "host", "kind", "nodes", "saved", "shape")

    def __init__(self):
        self.host = self.device = self.nodes = 0
        self.kind = self.element = ""
        self.shape = None
        self.graph = False
        self.saved = None  # whether graphs still hold what backward needs; None where that can't be seen


class Weigher:
    """Weighs things with the help of those who know the frameworks' own kinds."""

    def __init__(self, kinds):
        self.kinds = kinds
        self.nodes = _NODES  # how far a graph may be followed; 0 for not at all

    def load(self, thing):
        found = Load()
        self._into(found, thing, 0, 1.0)
        return found

    def _into(self, load, thing, depth, times):
        cls = thing.__class__
        if cls in _PLAIN:
            kind = "text" if cls in (str, bytes, bytearray) else "number"
            load.add(times * (0 if cls in (bool, type(None)) else sys.getsizeof(thing)), kind)
            return
        if cls.__module__ == "numpy":
            self._array(load, thing, times, depth)
            return
        for kind in self.kinds:
            if kind.weigh(load, thing, cls, self.nodes):
                return
        if cls in _SIZED or isinstance(thing, (list, tuple, dict, set, frozenset, deque)):
            size = sys.getsizeof(thing) if cls in _SIZED else _OBJECT + 8 * len_of(thing)
            load.add(times * size, "object")
            parts, n = sample(thing, 1 if depth else _ENDS)
        elif cls.__module__.startswith("PIL.") and hasattr(thing, "mode"):
            width, height = thing.size
            load.block(("i", id(thing)), width * height * len(thing.mode), 0, "image")
            return
        else:
            held = held_by(thing)
            load.add(times * (_OBJECT + (sys.getsizeof(held) if held.__class__ is dict else 8 * len(held))), "object")
            parts, n = list(islice(held.values(), 2 * _MAX_CHILDREN)), len(held)
        if depth < _DEPTH and parts:
            for part in parts:
                self._into(load, part, depth + 1, times * n / len(parts))

    def _array(self, load, array, times, depth):
        if getattr(array, "nbytes", None) is None:
            return  # a dtype, say, which is its own base
        base = getattr(array, "base", None)
        while base is not None and base.__class__ is array.__class__:
            array, base = base, base.base
        size = array.nbytes
        if load.shape is None:
            load.shape = list(array.shape)[:6]
        if getattr(array.dtype, "hasobject", False) and array.size and depth < _DEPTH:
            for part in array.flat[:_MAX_CHILDREN]:
                self._into(load, part, depth + 1, times * array.size / min(array.size, _MAX_CHILDREN))
        if size < 4096:
            load.add(times * (size + 112), "array")  # small ones are told by number, not by where they lie
        else:
            load.block(("a", id(array)), size, 0, "array")

    def container(self, thing, length):
        """Estimate all elements of a container from those at its ends and in its middle."""
        parts, _n = sample(thing, _ENDS)
        loads, walked = [], 0
        for part in reversed(parts):
            self.nodes = _NODES if walked < _GRAPHS else 0
            loads.append(self.load(part))
            walked += loads[-1].walked
        self.nodes = _NODES
        return self.estimate(loads[::-1], length, parts)

    def estimate(self, loads, length, parts=()):
        found = Estimate()
        if not loads:
            return found
        found.graph = any(load.graph for load in loads)
        if any(load.walked for load in loads):
            loads = [load for load in loads if load.walked]
            found.saved = any("saved" in load.kinds for load in loads)
        found.nodes = max(load.nodes for load in loads)
        found.shape = loads[-1].shape
        times, kinds = {}, {}
        for load in loads:
            for key in load.blocks:
                times[key] = times.get(key, 0) + 1
            for kind, size in load.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + size
        host = device = 0.0
        for load in loads:
            host += load.plain
            for key, (here, there) in load.blocks.items():
                if times[key] == 1 or length == 1:  # what several elements share is held once, and does not grow
                    host += here
                    device += there
        found.host, found.device = int(host / len(loads) * length), int(device / len(loads) * length)
        found.kind = max(kinds, key=lambda kind: kinds[kind]) if kinds else ""
        if found.kind == "saved":
            found.kind = "tensor"
        if parts:
            found.element = parts[-1].__class__.__name__
        return found


def sample(thing, ends):
    """Some elements of a container, the newest last, and how many it has; a dict's values stand for its items."""
    if isinstance(thing, dict):
        n = dict.__len__(thing)
        if n <= 3 * ends:
            return list(dict.values(thing)), n
        newest = [dict.__getitem__(thing, key) for key in islice(dict.__reversed__(thing), ends)]
        return [*islice(dict.values(thing), ends), *reversed(newest)], n
    if isinstance(thing, (list, tuple)):
        cls = list if isinstance(thing, list) else tuple
        n = cls.__len__(thing)  # type: ignore[arg-type]
        if n <= 3 * ends:
            return list(cls.__iter__(thing)), n  # type: ignore[arg-type]
        places = [*range(ends), *((n * k) // (ends + 1) for k in range(1, ends + 1)), *range(n - ends, n)]
        return [cls.__getitem__(thing, place) for place in places], n  # type: ignore[index]
    n = len_of(thing)
    if isinstance(thing, deque):
        if n > 3 * ends:
            return [deque.__getitem__(thing, place) for place in (*range(ends), *range(-ends, 0))], n
        return list(deque.__iter__(thing)), n
    cls = set if isinstance(thing, set) else frozenset
    return list(islice(cls.__iter__(thing), 3 * ends)), n


def len_of(thing):
    """The length as the built-in type counts it, whatever a subclass says."""
    for cls in (list, dict, tuple, set, frozenset, deque):
        if isinstance(thing, cls):
            return cls.__len__(thing)  # type: ignore[arg-type]
    return 0


def held_by(thing):
    """The attributes of an object itself as a dict, without asking any code of its class."""
    found = {}
    try:
        own = object.__getattribute__(thing, "__dict__")
        if own.__class__ is dict:
            return own
    except Exception:
        pass
    for base in type(thing).__mro__:
        for name in _slots(base):
            try:
                found[name] = base.__dict__[name].__get__(thing)
            except Exception:
                continue
    return found


def _slots(base):
    if base.__module__ == "builtins":
        return ()
    slots = base.__dict__.get("__slots__", ())
    slots = (slots,) if isinstance(slots, str) else tuple(slots)
    # A descriptor of the slot itself, never a property that was put in its place.
    return [name for name in slots if type(base.__dict__.get(name)).__name__ == "member_descriptor"]
