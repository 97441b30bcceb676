"""Which line is the user's: the nearest frame that is neither the interpreter's, a library's nor ours."""

import os
import sys

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _library_roots():
    import sysconfig  # here and below: only a process that trains pays for it

    roots = {_OURS}
    for key in ("stdlib", "platstdlib", "purelib", "platlib"):
        path = sysconfig.get_paths().get(key)
        if path:
            roots.add(os.path.realpath(path))
            roots.add(path)
    return tuple(root + os.sep for root in roots)


_roots = None
_known = {}
_LIBRARIES = ("numpy", "tensorflow", "torch", "pandas", "keras", "jax", "jaxlib", "scipy")


def is_user_file(filename):
    """True for the user's own source, judged by where it lies."""
    known = _known.get(filename)
    if known is None:
        global _roots
        if _roots is None:
            _roots = _library_roots()
        known = not (
            filename.startswith(("<frozen", "<__array_function__"))
            or "site-packages" in filename
            or "__autograph_generated_file" in filename
            or "dist-packages" in filename
            or os.path.abspath(filename).startswith(_roots)
        )
        _known[filename] = known
    return known


def is_library_kind(value):
    """True for an array, tensor or dataset of a library's: to ask it for its shape runs nothing of the user's."""
    return type(value).__module__.partition(".")[0] in _LIBRARIES


def user_frame(depth=1):
    """The nearest frame of the user's own above the caller, or None."""
    frame = sys._getframe(depth + 1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def place(frame):
    """A frame as the fields of a record: file, line, function and the code on that line."""
    if frame is None:
        return {}
    return place_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def place_of(filename, line, function):
    import linecache

    code = linecache.getline(filename, line or 0).strip()[:200]
    path = filename if filename.startswith("<") else os.path.abspath(filename)
    return {"file": path, "line": line or 0, "function": function, "code": code}
