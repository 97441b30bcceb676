"""The variables of a running function, read so that its `locals()` stays what the script made of it.

Python 3.13 gives a view, and 3.12 has a function for one variable. Before, there is only `f_locals`, which fills the
dict that `locals()` gives to the script. It is read where nobody can notice: not for code that may ask for that dict
itself, and not where somebody holds the dict; what was put into it is taken out again.
"""

import sys

_FUNCTION = 0x1  # CO_OPTIMIZED: a module's variables, and those of a class body, are a dict of their own
_ASKS = frozenset(("locals", "vars", "dir", "exec", "eval", "_getframe", "currentframe", "stack", "breakpoint",
                   "set_trace", "f_locals"))  # fmt: skip
_METHODS = frozenset(("eval", "dir", "stack"))  # of models, of paths, of tensors: asked of nothing that is global
_OURS = 3  # references to a frame's dict: the frame's, and two of ours
_asking = {}
_get = None


def read(frame, *names):
    """The variables of a frame by their names, of those that are asked for or of all; {} where it can't be done."""
    code = frame.f_code
    if not code.co_flags & _FUNCTION or sys.version_info >= (3, 13):
        values = frame.f_locals
        return {name: values[name] for name in names or list(values) if name in values}
    own = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    wanted = [name for name in own if name in names] if names else own
    if sys.version_info >= (3, 12):
        return _one_by_one(frame, wanted)
    if not wanted or _asks(code):
        return {}
    values = frame.f_locals
    if sys.getrefcount(values) > _OURS:
        _asking[code] = True
        return {}
    found = {name: values[name] for name in wanted if name in values}
    for name in own:  # what else somebody has put there is theirs
        values.pop(name, None)
    return found


def _one_by_one(frame, names):
    global _get
    if _get is None:
        import ctypes

        _get = ctypes.pythonapi.PyFrame_GetVarString
        _get.argtypes, _get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.py_object
    found = {}
    for name in names:
        try:
            found[name] = _get(frame, name.encode())
        except NameError:
            continue  # not set yet, or deleted
    return found


def _asks(code):
    """Whether a function may ask for the dict of its own variables."""
    known = _asking.get(code)
    if known is None:
        known = _ASKS.intersection(code.co_names)
        if known and known <= _METHODS:
            from dis import get_instructions

            known = any(one.argval in known for one in get_instructions(code) if one.opname == "LOAD_GLOBAL")
        if len(_asking) > 5000:
            _asking.clear()
        known = _asking[code] = bool(known)
    return known
