"""Wakes an adapter when the script has imported its framework; costs nothing until then."""

import os
import sys


class _ReportingLoader:
    """Stands in for a module's loader during its import only; afterwards the module carries its own again."""

    def __init__(self, loader, spec, when_loaded):
        self._loader = loader
        self._spec = spec
        self._when_loaded = when_loaded

    def __getattr__(self, name):
        if name == "_loader":  # a copy that is not filled in yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._spec.loader = self._loader
        try:
            module.__loader__ = self._loader
        except Exception:
            pass
        self._loader.exec_module(module)
        self._when_loaded(module)


# Python leaves its own import machinery out of a traceback, and out of the frames that `stacklevel` counts, by the
# name of the file. Ours stands in the middle of it: under its own name both would change for the user.
_ReportingLoader.exec_module.__code__ = _ReportingLoader.exec_module.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)


class ImportHook:
    """A finder in front of the others that only watches for a handful of names."""

    def __init__(self, guard):
        self.guard = guard
        self.waiting = {}

    def when_imported(self, name, act):
        """Call `act(module)` once `name` has been imported; at once if it already is."""
        act = self.guard(act)
        module = sys.modules.get(name)
        if module is not None:
            act(module)
        else:
            self.waiting.setdefault(name, []).append(act)

    def find_spec(self, name, path=None, target=None):
        acts = self.waiting.get(name)
        if acts is None:
            return None
        try:
            spec = self._real_spec(name, path, target)
            if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
                return None

            def when_loaded(module):
                for act in self.waiting.pop(name, ()):
                    act(module)

            spec.loader = _ReportingLoader(spec.loader, spec, when_loaded)
            return spec
        except Exception as error:
            self.guard.caught("find_spec", error)
            return None

    def _real_spec(self, name, path, target):
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def install(self):
        sys.meta_path.insert(0, self)


class ApiFinder:
    """Serves `import holter` where Holter itself is not installed, as under pipx: the last to be asked."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - the import system's signature
        if name != "holter":
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self)  # type: ignore[arg-type]  # a loader by its methods

    def create_module(self, spec):  # noqa: ARG002 - the import system's signature
        return None

    def exec_module(self, module):
        from .. import api

        module.step, module.track, module.resumable = api.step, api.track, api.resumable


# --- Finds the adapters: one file `adapter*.py` per framework
# It names the modules that it waits for in `WAITS_FOR` and offers `install(agent, module)`. An adapter imports nothing
# of its framework itself: it is woken when the script has done so.

# Read from the files' first lines instead of importing them: a process that trains nothing pays for no adapter.
_MARK = "WAITS_FOR = "
_AGENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _waits():
    for folder, below, names in os.walk(_AGENT):
        below.sort()
        for name in sorted(names):
            if name.startswith("adapter") and name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as source:
                    for line in source:
                        if line.startswith(_MARK):
                            found = os.path.relpath(path, _AGENT)[:-3].replace(os.sep, ".")
                            yield found, [one.strip(" \"'()[]\n") for one in line[len(_MARK) :].split(",")]
                            break


def wait_for_frameworks(agent):
    """Arm the import hook for every adapter of the agent's."""
    for name, modules in _waits():
        for module_name in filter(None, modules):
            agent.hook.when_imported(module_name, _waker(agent, name))


def _waker(agent, name):
    def wake(module):
        from importlib import import_module

        adapter = import_module("_holter.agent." + name)
        top = sys.modules.get(module.__name__.partition(".")[0], module)
        version = str(getattr(top, "__version__", "unknown"))
        agent.adapter(module.__name__, version, lambda: adapter.install(agent, module))

    return wake
