"""Whose state it is: a training is known again by its place in the script and by all of it that can be seen.

Never by a count: a script that was started again may skip what it has done, and its first training is then another
one. The rule, in `Trainings.begin`:

- The key holds the command line, the user's lines that led to the call, the model's kind and structure, the optimizer,
  the seeds of the frameworks and all numbers that were given. Where it differs, nothing is gone on from; so no state of
  another shape is loaded.
- Where the data can be seen as well, and so can the weights at the start and the random generators, a training with
  all of these equal is the same to the bit, done or not: what was computed is what would be computed.
- Otherwise it is the same one only if the attempts before have begun a single training of this key, which was not done,
  and this process comes to it for the first time. Seeds need not be fixed for that.
- In every other case it is begun plainly, which is always right, and said in one line.
"""

import hashlib
import json
import os
import sys
import weakref
from functools import partial
from time import monotonic
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ...record import environment
from ..core.user_frame import is_library_kind, is_user_file

_NUMBERS, _WORDS = (bool, int, float, type(None)), (str, bytes, range)
_ITEMS, _DEEP = 256, 6
_MAX_ARRAYS, _MAX_BYTES, _MAX_OBJECTS = 64, 1 << 28, 1 << 18  # that are looked at
_NAMES = ("name", "registered_name")  # Keras numbers them through the process


def place(frame):
    """The user's lines that led here, the nearest first; empty where none did."""
    found = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            found.append((os.path.abspath(frame.f_code.co_filename), frame.f_lineno))
        frame = frame.f_back
    return found


def digest(*parts):
    """One word for all of these."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()


def plain(value, words=True, deep=0):
    """A value as its numbers, kinds and shapes, and its words where they mean something; never an address or a name
    that is counted through the process."""
    kind = type(value).__name__
    if isinstance(value, _NUMBERS) or (words and isinstance(value, _WORDS)):
        return _word(value)
    if deep > _DEEP:
        return kind
    if isinstance(value, dict):
        pairs = [(str(name), plain(one, words, deep + 1)) for name, one in list(value.items())[:_ITEMS]]
        return kind, sorted(pair for pair in pairs if pair[0] not in _NAMES)
    if isinstance(value, (list, tuple, set, frozenset)):
        return kind, [plain(one, words, deep + 1) for one in list(value)[:_ITEMS]]
    if is_library_kind(value) and hasattr(value, "shape") and hasattr(value, "dtype"):
        return kind, str(tuple(value.shape)), str(value.dtype)
    if isinstance(value, FunctionType):
        given = [*_held(value), *_numbers_named(value)]
        return kind, value.__code__.co_filename, value.__code__.co_firstlineno, plain(given, words, deep + 1)
    if isinstance(value, partial):
        return kind, [plain(one, words, deep + 1) for one in (value.func, value.args, value.keywords)]
    return kind, numbers_of(value)


def is_shown(value, deep=0):
    """Tell whether `plain` shows all of a value: two that it shows alike do the same."""
    if isinstance(value, (*_NUMBERS, *_WORDS)):
        return True
    if deep > _DEEP:
        return False
    if type(value) in (list, tuple, set, frozenset, dict):
        inside = [*value, *value.values()] if type(value) is dict else value
        return len(value) <= _ITEMS and all(is_shown(one, deep + 1) for one in inside)
    if isinstance(value, partial):
        return all(is_shown(one, deep + 1) for one in (value.func, value.args, value.keywords))
    if isinstance(value, FunctionType) and is_user_file(value.__code__.co_filename):
        used = [value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__]
        if not all(_is_librarys(one) or isinstance(one, (*_NUMBERS, *_WORDS)) for one in used):
            return False
        return is_shown(_held(value), deep + 1)
    return _is_librarys(value)


def _is_librarys(value):
    """A module, class or function of a library: what they are does not hang on this script."""
    if isinstance(value, ModuleType):
        return not is_user_file(getattr(value, "__file__", None) or "")
    if not isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return False
    file = getattr(sys.modules.get(value.__module__ or "builtins"), "__file__", None)
    return value.__module__ != "__main__" and not (file and is_user_file(file))


def _held(function):
    """What a function closes over, and the values that its arguments have by default."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    return [*cells, function.__defaults__, function.__kwdefaults__]


def _numbers_named(function):
    """The numbers and words of its module that a function names."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [one for one in named if isinstance(one, (*_NUMBERS, *_WORDS))]


def numbers_of(thing):
    """The numbers among a thing's own attributes: a rate, a patience, a width."""
    own = getattr(thing, "__dict__", None) or {}
    return sorted((name, _word(value)) for name, value in own.items() if isinstance(value, _NUMBERS))


def _word(value):
    """A value's own words, also of a number that has a `__repr__` of the script's."""
    kind: "Any" = next(kind for kind in (*_NUMBERS, *_WORDS) if isinstance(value, kind))
    return kind.__repr__(value)


def structure(module):
    """A PyTorch module as its kinds of layers, their numbers, and the names, shapes and kinds of its weights."""
    layers = [(type(part).__name__, numbers_of(part)) for part in module.modules()]
    weights = [
        (name, plain(value) if hasattr(value, "shape") else type(value).__name__)
        for name, value in module.state_dict().items()
    ]
    return layers, weights


def _is_empty(cell):
    try:
        cell.cell_contents  # noqa: B018 - raises where there is none
    except ValueError:
        return True
    return False


def content(value, numpy):
    """What an array holds, all of it: data of two folds may differ in a single row. None where it can't be seen without
    running what the user wrote, or is too much to look at."""
    if isinstance(value, (list, tuple)):
        found = [content(one, numpy) for one in value[:_MAX_ARRAYS]]
        return None if None in found or not found or len(value) > _MAX_ARRAYS else found
    if isinstance(value, dict):
        found = [(str(name), content(one, numpy)) for name, one in value.items()]
        return None if any(one is None for _name, one in found) or not found else found
    if value is None:
        return "none"
    if not is_library_kind(value) or not hasattr(value, "shape") or hasattr(value, "element_spec"):
        return None
    if not hasattr(value, "__getitem__") or not (hasattr(value, "dtype") or hasattr(value, "iloc")):
        return None
    if not isinstance(value, numpy.ndarray) and not _is_small(value, numpy):
        return None
    try:
        array = numpy.asarray(value)
    except Exception:  # it holds what no array can hold
        return None
    if array.dtype.kind == "O":
        rows = array.ravel()[: _MAX_OBJECTS + 1].tolist()
        plainly = len(rows) <= _MAX_OBJECTS and all(type(one) in (*_NUMBERS, *_WORDS) for one in rows)
        return digest(array.shape, rows) if plainly else None
    if array.nbytes > _MAX_BYTES:
        return None
    found, flat = hashlib.blake2b(digest_size=12), array if array.ndim else array.reshape(1)
    rows = max(1, (1 << 24) * len(flat) // max(1, array.nbytes))
    for begin in range(0, len(flat), rows):
        found.update(numpy.ascontiguousarray(flat[begin : begin + rows]).tobytes())
    return digest(array.shape, str(array.dtype), found.hexdigest())


def _is_small(value, numpy):
    """Tell whether what is no array of NumPy's lies in the host's memory, and may be copied into one."""
    if "CPU" not in str(getattr(value, "device", "CPU")).upper():
        return False  # to read it would make the device wait
    size = numpy.prod([int(length or 0) for length in value.shape], dtype="float64")
    return size * getattr(getattr(value, "dtype", None), "itemsize", 8) <= _MAX_BYTES


def random_now():
    """The generators that Python, NumPy and the frameworks draw seeds from; to read them changes nothing."""
    import random

    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    tensorflow = sys.modules.get("tensorflow.python.eager.context")
    drawn = list(numpy.random.get_state()) if numpy is not None else []
    if torch is not None:
        drawn.append(torch.default_generator.get_state().numpy())
    context = tensorflow.context_safe() if tensorflow is not None else None
    if context is not None:
        drawn += [getattr(context, "_seed", None), getattr(getattr(context, "_rng", None), "getstate", int)()]
    return digest(random.getstate(), [one.tobytes() if hasattr(one, "tobytes") else one for one in drawn])


def seeds_given():
    """What the script has seeded the frameworks with: with another seed it is another training."""
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow.python.eager.context")
    context = tensorflow.context_safe() if tensorflow is not None else None
    return torch.initial_seed() if torch is not None else None, getattr(context, "_seed", None)


class Training:
    """One training of this run: its number names its state, and outlasts the process."""

    def __init__(self, number, at, again=False):
        self.number, self.at, self.again = number, at, again  # again: an attempt before has begun it


class Trainings:
    """What this run has begun to train, over all of its attempts, in a file that outlasts the process."""

    def __init__(self, agent, source):
        self.agent, self.source = agent, source
        self.attempt = int(os.environ.get(environment.ATTEMPT) or 1)
        self.folder = os.environ.get(environment.STATE_DISK, "")
        self.path = os.path.join(self.folder, source + ".trainings") if self.folder else None
        self.seen = []  # keys and proofs of this process
        self.earlier: "Any" = None  # trainings of earlier attempts by number, read at the first
        self.reported = set()

    def begin(self, key, proof, at):
        """A training begins: which one it is. `proof` is None where its data or weights can't be seen."""
        key = digest(key, seeds_given(), sys.argv, os.getcwd())
        before = self._before(key)
        mine = [one for one in self.seen if one[0] == key]
        self.seen.append((key, proof))
        same = [one for one in before if one["proof"] == proof] if proof is not None else []
        nth = sum(one[1] == proof for one in mine)
        found = None
        if nth < len(same):
            found = same[nth]
        elif len(before) == 1 and not mine and not before[0]["over"]:
            found = before[0]
        if found is not None and self._is_claimed(found["number"]):
            found = None
        if found is None:
            if before:
                self._decline(before, at)
            found = {"number": "%d-%d-%d" % (self.attempt, os.getpid(), len(self.seen))}
        again = found in before
        self._write({"number": found["number"], "key": key, "proof": proof, "attempt": self.attempt})
        return Training(found["number"], at, again)

    def over(self, training):
        """It is done."""
        self._write({"number": training.number, "over": True, "attempt": self.attempt})

    def _before(self, key):
        """Trainings of earlier attempts with this key, in the order in which they were begun."""
        if self.earlier is None:
            self.earlier = known = {}
            for line in self._lines():
                if line["attempt"] >= self.attempt:
                    continue
                if line.get("over"):
                    if line["number"] in known:
                        known[line["number"]]["over"] = True
                else:
                    known.setdefault(line["number"], {**line, "over": False})
        return [one for one in self.earlier.values() if one["key"] == key]

    def _lines(self):
        if self.path is None or self.attempt < 2 or not os.path.exists(self.path):
            return []
        with open(self.path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def _write(self, line):
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")

    def _is_claimed(self, number):
        """Another process of this attempt goes on with it."""
        try:
            path = os.path.join(self.folder, "%s.%s.%d.taken" % (self.source, number, self.attempt))
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return True
        return False

    def _decline(self, before, at):
        where = "%s:%d" % (os.path.basename(at[0][0]), at[0][1]) if at else "this place"
        if where in self.reported:
            return
        self.reported.add(where)
        because = "an attempt before has done a training at %s; whether this is the same one" % where
        if len(before) > 1:
            because = "%d trainings were begun at %s before; which of them this is" % (len(before), where)
        because += " can't be proven, so it begins as the script has it"
        self.agent.say("declined", act="resume", step=self.agent.beat.steps + 1, because=because)


# --- Checkpoints that a Trainer has written in this run, by the training they belong to: noted when they are complete

_REPORT_EVERY_S = 60.0


class Checkpoints:
    """The notes on one framework's checkpoints, which outlast the process."""

    def __init__(self, agent, source):
        self.agent, self.source = agent, source
        folder = os.environ.get(environment.STATE_DISK)
        self.path = os.path.join(folder, source + ".checkpoints") if folder else None
        self.again = int(os.environ.get(environment.ATTEMPT) or 1) > 1
        self.trainings = Trainings(agent, source)
        self.present = weakref.WeakKeyDictionary()  # Trainer -> the training that it is at
        self.reported_at = None

    def note(self, training, path, step, epoch):
        """A checkpoint is written; `step` and `epoch` are the framework's own."""
        if self.path is None:
            return
        known = {"path": os.path.abspath(str(path)), "step": int(step), "epoch": int(epoch)}
        line = {"training": training.number, **known}
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        self.report_state(step, epoch)

    def done(self, training):
        """A training is done; it is not gone on from again."""
        try:
            if training is not None:
                self.trainings.over(training)
        except Exception as error:
            self.agent.guard.caught("done", error)

    def report_state(self, step, epoch):
        """Tell that there is a state to go on from: the first time, and now and then."""
        now = monotonic()
        if self.reported_at is None or now >= self.reported_at + _REPORT_EVERY_S:
            self.reported_at = now
            self.agent.say("state", source=self.source, step=int(step), epoch=int(epoch))

    def last(self, training, is_complete):
        """The newest of a training's checkpoints that is still its own, there and complete, or None."""
        if self.path is None or not training.again or not os.path.exists(self.path):
            return None
        with open(self.path) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        newest = {line["path"]: line for line in lines}  # another training may have written over it
        found = [one for one in lines if newest[one["path"]] is one and one["training"] == training.number]
        return next((one for one in reversed(found) if is_complete(one["path"])), None)

    def report_going_on(self, found, because):
        """Tell that a checkpoint of this run is gone on from."""
        text = "goes on after step %d, from %s" % (found["step"], os.path.basename(found["path"]))
        self.report_resumed(found["step"], found["step"], text, because)

    def report_resumed(self, step, passed, text, because):
        """Tell from where this process goes on, and how many steps it passes over by that."""
        self.agent.say(
            "intervention", act="resume", keeps="equivalent", step=self.agent.beat.steps + 1, because=because,
            source=self.source, from_step=int(step), passed=int(passed), text=text,
        )  # fmt: skip
