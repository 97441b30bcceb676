"""The ways in which adapters put themselves around a framework's own callables, and around calls of a user's class."""

import functools
import weakref
from types import FunctionType

from ..core import frame_locals
from ..core.creation_sites import site_of
from ..core.exit_hooks import describe
from ..core.user_frame import is_user_file, user_frame

_MAX_STEP_ERRORS = 20


def owner_of(cls, name):
    """The class along the method resolution order that defines `name` itself."""
    for base in cls.__mro__:
        if name in vars(base):
            return base
    raise AttributeError("%s has no %s" % (cls.__name__, name))


def uncounted(function):
    """No `stacklevel` of a warning counts a frame of it: the warning stands on the line that it always stood on.

    Python passes over the frames of its own import machinery, which it knows by words in the file's name.
    """
    code = function.__code__
    function.__code__ = code.replace(co_filename=code.co_filename + "#importlib._bootstrap")
    return function


def drop_own_frame(error):
    """Take the wrapper's own line out of a traceback, so that the user reads the one they always had.

    To be called in the wrapper's `except` block, before a bare `raise`; Python before 3.11 keeps the line.
    """
    error.__traceback__ = error.__traceback__.tb_next


class StepErrors:
    """Errors that leave a step: reported in case the script catches them and nobody ever shows them.

    To be called in a wrapper's `except` block, before a bare `raise`.
    """

    def __init__(self, agent, beat):
        self.agent = agent
        self.beat = beat
        self.count = 0
        self.reported = None

    def raised_through(self, error):
        """Keep the wrapper's own line out of the traceback, and note the error once, whatever wrappers it passes."""
        drop_own_frame(error)
        if isinstance(error, StopIteration) or not isinstance(error, Exception) or self.reported == id(error):
            return
        self.reported = id(error)
        self.count += 1
        if self.count <= _MAX_STEP_ERRORS:
            try:
                self.agent.say("step-error", step=self.beat.steps + 1, **describe(error, above=3))
            except Exception as own:
                self.agent.guard.caught("step-error", own)


def maker_of(thing, depth):
    """The user's line that made `thing`: not a line of its own `__init__`, but the one that called its class."""
    frame = user_frame(depth + 1)
    while frame is not None:
        code = frame.f_code
        if code.co_name != "__init__" or not code.co_argcount:
            break
        if frame_locals.read(frame, code.co_varnames[0]).get(code.co_varnames[0]) is not thing:
            break
        frame = frame.f_back
        while frame is not None and not is_user_file(frame.f_code.co_filename):
            frame = frame.f_back
    return site_of(frame)


def timed(holder, name, beat, phase, mine=None):
    """Account a call to `phase`; where `mine` says that it comes from another thread, it passes by."""
    inner = getattr(holder, name)
    enter = beat.enter

    @functools.wraps(inner)
    def call(*args, **kwargs):
        before = enter(phase) if mine is None or mine() else -1
        try:
            return inner(*args, **kwargs)
        except BaseException as error:
            drop_own_frame(error)
            raise
        finally:
            if before >= 0:
                enter(before)

    setattr(holder, name, uncounted(call))


def after(cls, name, act, guard):
    """Call `act(self)` when a method of `cls` has returned."""
    inner = vars(cls)[name]

    @functools.wraps(inner)
    def call(self, *args, **kwargs):
        try:
            result = inner(self, *args, **kwargs)
        except BaseException as error:
            drop_own_frame(error)
            raise
        try:
            act(self)
        except Exception as error:
            guard.caught("%s.%s" % (cls.__name__, name), error)
        return result

    setattr(cls, name, uncounted(call))


_patched_calls = weakref.WeakKeyDictionary()  # what stands for `__call__` on a class -> what stood there, or None
_BY_VALUE = ("cloudpickle", "joblib.externals.cloudpickle", "ray.cloudpickle", "pyspark.cloudpickle")


def around_calls(cls, make):
    """Put `make(own)` around the calls of a class, `own` being the function that the class itself has for them.

    What is no function (a static method, a partial one, an object that can be called) is bound in a way of its own:
    such a class is left alone.
    """
    own = vars(cls).get("__call__")
    if own is None or isinstance(own, FunctionType):
        call = uncounted(make(own))
        _patched_calls[call] = own
        type.__setattr__(cls, "__call__", call)  # not through a metaclass of the user's


def keep_out_of_pickles(hook):
    """Picklers that write a class down by its value write it as it was: the other process knows nothing of ours.

    The class has to hold a plain function, since compilers look into it; and how one is written is for no one to say.
    """
    for package in _BY_VALUE:
        hook.when_imported(package + ".cloudpickle", _patch_cloudpickle)
    hook.when_imported("dill._dill", _patch_dill)


def _patch_cloudpickle(module):
    inner = module._extract_class_dict

    @functools.wraps(inner)
    def _extract_class_dict(cls):
        return _as_it_was(inner(cls))

    module._extract_class_dict = _extract_class_dict


def _patch_dill(module):
    inner = module._get_typedict_type

    @functools.wraps(inner)
    def _get_typedict_type(cls, clsdict, *args):
        return inner(cls, _as_it_was(clsdict), *args)

    module._get_typedict_type = _get_typedict_type


def _as_it_was(names):
    call = names.get("__call__")
    while isinstance(call, FunctionType) and call in _patched_calls:
        call = _patched_calls[call]
        if call is None:
            del names["__call__"]
        else:
            names["__call__"] = call
    return names


def each_guarded(guard, *parts):
    """Run the parts of an installation one by one: what a version does not have costs only that part."""
    done = 0
    for part in parts:
        try:
            part()
            done += 1
        except Exception as error:
            guard.caught(part.__name__, error)
    return done
