"""Whether a call's result is what something is divided by at once: `total / len(loader)`."""

import dis

_NOTHING = ("CACHE", "NOP", "EXTENDED_ARG")


def is_divisor(frame):
    """Tell it of the call that a frame is at."""
    called = False
    for one in dis.get_instructions(frame.f_code):
        if one.offset < frame.f_lasti or one.opname in _NOTHING:
            continue
        if not called:
            called = one.opname.startswith("CALL")  # Python 3.11 may be at what comes before it
            continue
        named = one.opname in ("BINARY_TRUE_DIVIDE", "INPLACE_TRUE_DIVIDE")  # before Python 3.11
        return named or (one.opname == "BINARY_OP" and one.argrepr in ("/", "/="))
    return False
