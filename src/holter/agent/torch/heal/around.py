"""What a call of a model may change beside what it returns, as it was before: attributes, buffers, random generators.

Each chunk draws its own dropout masks and noise, and draws them again when it is computed a second time. They are not
those that the full batch would have drawn: a model that draws is split as `equivalent`.
"""

import functools
import random
import sys

from ...heal.leaves import Unsplittable

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type)
_TABLES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *HOOKS}
_MAX_CONTENTS = 1000  # entries of a list on a module: a longer one is no state of a call


class Around:
    """What a call of the model may change beside what it returns, as it was before.

    Buffers, attributes, what lists, dicts and sets among them hold, and the random generators: a call that failed in
    the middle has moved some of them, and is made again. Of buffers beyond `max_bytes` it is only known whether an
    operation has written to them.
    """

    def __init__(self, state, modules, max_bytes=float("inf"), given=()):
        self.torch, self.modules, self.device = state.torch, list(modules), state.device
        self.given = []  # what objects that are no containers hold: a cache that is handed from layer to layer
        for thing in given:
            self._walk(thing)
        self.apart = {id(norm) for norm in state.norms}
        self.random = RandomState(self.torch, self.device)
        self.tables = [(table, dict(table)) for table in self._tables()]
        held = [value for table, _ in self.tables for key, value in table.items() if key not in _TABLES]
        self.contents = [
            (value, value.copy()) for value in held if type(value) in (list, dict, set) and len(value) <= _MAX_CONTENTS
        ]
        self.contents += [(held, before) for _, held, before in self.given]
        self.copies, self.versions = self._copied(state.split.unseen.is_plain, max_bytes)

    def _copied(self, is_plain, max_bytes):
        """Buffers with a copy and a name of each, None for what BatchNorm moves; and the others with their version."""
        copies, versions, seen, strided = [], [], set(), self.torch.strided
        for layer in self.modules:
            for name, buffer in layer.__dict__["_buffers"].items():
                if buffer is None or id(buffer) in seen or not is_plain(buffer) or buffer.layout is not strided:
                    continue
                seen.add(id(buffer))
                size = buffer.numel() * buffer.element_size()
                if size > max_bytes or 0 in buffer.stride():  # elements that lie at one place can't be written back
                    versions.append((buffer, _version(buffer)))
                else:
                    max_bytes -= size
                    name = None if id(layer) in self.apart else "%s.%s" % (type(layer).__name__, name)
                    copies.append((buffer, buffer.detach().clone(), name))
        return copies, versions

    def _walk(self, given):
        ahead, seen, known = [given], set(), (*PLAIN, self.torch.nn.Module, self.torch.Tensor)
        while ahead and len(seen) <= _MAX_CONTENTS:
            thing = ahead.pop()
            if id(thing) in seen or isinstance(thing, known) or callable(thing):
                continue
            seen.add(id(thing))
            kind, held = type(thing), getattr(thing, "__dict__", None)
            if kind in (list, dict, set):
                self.given.append((type(given).__name__, thing, thing.copy()))
            ahead += thing.values() if kind is dict else thing if kind in (list, tuple, set) else ()
            ahead += [held] if type(held) is dict else []

    def _tables(self):
        for layer in self.modules:
            yield layer.__dict__
            yield layer.__dict__["_buffers"]

    def _marks(self):
        found = {}
        for layer in self.modules:
            if id(layer) in self.apart:
                continue
            for table in (layer.__dict__, layer._buffers):
                for key, value in table.items():
                    if key not in _TABLES and key not in ("training", "dropout"):
                        found[id(table), key] = type(layer).__name__, self._mark(value)
        return found

    def _mark(self, value):
        if isinstance(value, self.torch.Tensor):
            return id(value), _version(value)
        if isinstance(value, (list, dict, set)):
            return id(value), len(value)
        return value if isinstance(value, PLAIN) else id(value)

    def settle(self):
        """What a first call has left on the module may be a cache; from here on nothing may change."""
        self.marks = self._marks()
        self.alive = [dict(table) for table in self._tables()]  # while they live, no other has their address

    def check(self, call):
        """Raise where calls have changed the model or their inputs, or drawn what can't be drawn for a chunk."""
        if not call.is_untouched():
            raise Unsplittable("each call changes its inputs or weights in place")
        now = self._marks()
        for where in {**self.marks, **now}:
            if now.get(where) != self.marks.get(where):
                name = (now.get(where) or self.marks.get(where))[0]
                raise Unsplittable("each call changes %s.%s" % (name, where[1]))
        for name, held, before in self.given:
            if (
                len(held) != len(before)
                or [*map(id, held)] != [*map(id, before)]
                or (type(held) is dict and [*map(id, held.values())] != [*map(id, before.values())])
            ):
                raise Unsplittable("each call changes the %s that it is given" % name)
        # Running statistics are written to past their version.
        for buffer, copy, name in self.copies:
            if name is not None and not self.torch.equal(buffer, copy):
                raise Unsplittable("each call changes %s" % name)
        if self.random.others_drew(RandomState(self.torch, self.device)):
            raise Unsplittable("it draws random numbers with Python's or NumPy's generators")

    def undo(self):
        """Make it all as it was; tells whether it is. A graph that was made before may go on: no version is moved."""
        for table, before in self.tables:
            if len(table) != len(before) or any(table.get(key) is not value for key, value in before.items()):
                table.clear()
                table.update(before)
        for held, copy in self.contents:
            held.clear()
            (held.extend if type(held) is list else held.update)(copy)
        for buffer, copy, name in self.copies:
            if name is None or not self.torch.equal(buffer, copy):
                buffer.data.copy_(copy)
        self.random.put_back()
        return all(_version(buffer) == version for buffer, version in self.versions)


def _version(tensor):
    return 0 if tensor.is_inference() else tensor._version


class RandomState:
    """All generators of the process as they are now: PyTorch's for the host and one device, Python's, NumPy's."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.host = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.python, self.numpy = random.getstate(), _numpy_state()

    def put_back(self):
        """Make the generators as they were."""
        self.torch.set_rng_state(self.host)
        if self.on_device is not None:
            self.torch.cuda.set_rng_state(self.on_device, self.device)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)

    def torch_drew(self, later):
        """Tell whether PyTorch's generators were drawn from between this and a later state."""
        if not self.torch.equal(self.host, later.host):
            return True
        return self.on_device is not None and not self.torch.equal(self.on_device, later.on_device)

    def others_drew(self, later):
        """The same of Python's and NumPy's."""
        if self.python != later.python or (self.numpy is None) != (later.numpy is None):
            return True
        if self.numpy is None:
            return False
        return self.numpy[2:] != later.numpy[2:] or not bool((self.numpy[1] == later.numpy[1]).all())


def _numpy_state():
    numpy = sys.modules.get("numpy.random")
    return numpy.get_state() if hasattr(numpy, "get_state") else None


# --- while two samples are run: nothing is drawn at random -------------------------------------------------------


@functools.lru_cache(maxsize=1)
def nothing_drawn_class(torch):
    """A mode under which dropout drops nothing and noise is a constant; `met` tells whether there was any.

    `ignored` are the labels that losses leave out; `rounds` tells whether numbers of two bytes are computed with.
    """
    functional, tensor = torch.nn.functional, torch.Tensor
    names = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    dropouts = {getattr(functional, name) for name in names}
    halves = (torch.float16, torch.bfloat16)
    noises, fills = {torch.rand_like, torch.randn_like}, {tensor.normal_, tensor.uniform_, tensor.exponential_}

    class NothingDrawn(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        met = rounds = False
        figures, recurrent = None, ()

        def __init__(self):
            super().__init__()
            self.ignored = set()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            found = self.without_chance(func, args, kwargs)
            if self.figures is not None:
                self.figures.take_down(func, args, kwargs, found)
            return found

        def without_chance(self, func, args, kwargs):
            if not self.rounds and args and isinstance(args[0], tensor) and args[0].dtype in halves:
                self.rounds = True
            if func is functional.cross_entropy or func is functional.nll_loss:
                self.ignored.add(args[4] if len(args) > 4 else kwargs.get("ignore_index", -100))
            if func in dropouts:
                self.met |= kwargs.get("training", True) and kwargs.get("p", 0.5) > 0.0
                return args[0]
            if func in noises or func in fills:
                self.met = True
                return torch.full_like(args[0], 0.5) if func in noises else args[0].fill_(0.5)
            if func is functional.scaled_dot_product_attention:
                given = args[4] if len(args) > 4 else kwargs.pop("dropout_p", 0.0)
                self.met |= given > 0.0
                return func(*args[:4], *((0.0,) if len(args) > 4 else ()), *args[5:], **kwargs)
            if func is functional.multi_head_attention_forward and "training" in kwargs:
                self.met |= kwargs["training"] and args[10] > 0.0
                kwargs["training"] = False
            return func(*args, **kwargs)

    return NothingDrawn
