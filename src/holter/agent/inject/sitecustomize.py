# Put in front of PYTHONPATH by `holter run`; read by every Python that the command starts, of any age.
# So this file keeps to what Python 2.7 can parse, does nothing but hand over, and makes way for the user's own.
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _holter_arrive():
    if sys.version_info < (3, 9) or sys.implementation.name not in ("cpython", "pypy"):
        return
    agent_dir = os.environ.get("HOLTER_AGENT_DIR")
    if not agent_dir or not os.path.isdir(agent_dir):
        return
    # The agent travels by path: a package of its own name, so that it never meets a `holter` installed here.
    package = type(sys)("_holter")
    package.__path__ = [os.path.dirname(os.path.dirname(_here))]
    sys.modules["_holter"] = package
    from _holter.agent.core import arrival

    arrival.arrive(agent_dir)


try:
    _holter_arrive()
except Exception:
    pass

# Now the user's own sitecustomize, as if ours had never been there; its errors are its own and stay visible.
sys.path[:] = [p for p in sys.path if os.path.normpath(p) != _here]
_ours = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # noqa: F401
except ImportError as _error:
    if getattr(_error, "name", "sitecustomize") != "sitecustomize":
        raise
    if _ours is not None:
        sys.modules["sitecustomize"] = _ours
