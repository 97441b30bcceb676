"""Whether the script may still read a tensor that it holds, from where it is: by the bytecode of who holds it.

After `logits, loss = model(x, y)` and `loss.backward()` most loops still hold the logits, and never look at them again
before the next ones come. It is so where every holder is a variable of a function that is running, or an entry of what
such a variable holds (`outputs.logits`), and no path from the present instruction reads it before it is assigned anew.
"""

import dis
import sys

from ...core.frame_locals import read
from ...core.user_frame import is_user_file

_ENDS = ("RETURN", "RAISE", "RERAISE")
_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
_DEEPEST = 60  # frames


def may_be_read(made, own_references):
    """`own_references` are those of the one who asks."""
    others = sys.getrefcount(made) - own_references - 2  # this function's, and that of the count
    frame, deep, counted = sys._getframe(1), 0, set()
    while frame is not None and deep < _DEEPEST:
        if is_user_file(frame.f_code.co_filename):
            for name, value in read(frame).items():
                held = 1 if value is made else _parts(value).count(id(made))
                if held and _is_read(frame, name, value, made):
                    return True
                if value is made or id(value) not in counted:  # several variables may hold one container
                    others -= held
                counted.add(id(value))
        frame, deep = frame.f_back, deep + 1
    return others > 0


def _parts(value):
    """The addresses of what a container holds."""
    if isinstance(value, dict):
        found = list(dict.values(value))
    elif isinstance(value, (list, tuple)):
        found = list(value[:100])
    else:
        found = []
    return [id(one) for one in [*found, *vars(value).values()]] if hasattr(value, "__dict__") else list(map(id, found))


def _is_read(frame, name, value, made):
    """Tell whether the variable may be read from here on for the tensor's sake."""
    code = frame.f_code
    if name in code.co_cellvars or name in code.co_freevars:
        return True
    if code.co_name == "<module>" and any(_asks_for_global(one, name) for one in _within(code)):
        return True
    steps = list(dis.get_instructions(code))
    at = {step.offset: n for n, step in enumerate(steps)}
    handlers = getattr(dis.Bytecode(code), "exception_entries", ())  # before Python 3.11 they are jumped to
    present = max(sum(step.offset <= frame.f_lasti for step in steps) - 1, 0)
    ahead, seen = [present + 1, *_handled(steps[present], handlers, at)], set()
    while ahead:
        n = ahead.pop()
        if n in seen or n >= len(steps):
            continue
        seen.add(n)
        step, kind = steps[n], steps[n].opname
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if kind.startswith("LOAD_") and name in names and kind not in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_CONST"):
            if value is made or len(names) > 1 or _takes(steps, n + 1, value) in (None, id(made)):
                return True
        elif kind.startswith(("STORE_", "DELETE_")) and names[0] == name and kind[-4:] != "ATTR":
            continue
        ahead += _handled(step, handlers, at)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            ahead.append(at.get(step.argval, len(steps)))
        if not kind.startswith(_ENDS) and kind not in _ALWAYS:
            ahead.append(n + 1)
    return False


def _handled(step, handlers, at):
    """Where it goes on when an instruction fails."""
    return [at[one.target] for one in handlers if one.start <= step.offset < one.end and one.target in at]


def _takes(steps, n, value):
    """The address of the part that the next instructions take of a container; None where they take all of it."""
    step = steps[n]
    if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        held = vars(value) if hasattr(value, "__dict__") else {}
        return id(held[step.argval]) if step.argval in held else None
    if step.opname == "LOAD_CONST" and steps[n + 1].opname in ("BINARY_SUBSCR", "BINARY_OP"):
        key = step.argval
        if isinstance(value, dict):
            known = list(dict.values(value)) if isinstance(key, int) else [dict.get(value, key)]
            return id(known[key] if isinstance(key, int) and key < len(known) else known[0]) if known else None
        if isinstance(value, (list, tuple)) and isinstance(key, int) and -len(value) <= key < len(value):
            return id(value[key])
    return None


def _within(code):
    for one in code.co_consts:
        if hasattr(one, "co_code"):
            yield one
            yield from _within(one)


def _asks_for_global(code, name):
    return name in code.co_names and any(
        step.argval == name and step.opname in ("LOAD_GLOBAL", "LOAD_NAME") for step in dis.get_instructions(code)
    )
