"""Finds the adapters: one file `adapter*.py` per framework, which names the modules that it waits for in `WAITS_FOR`
and offers `install(agent, module)`.

An adapter imports nothing of its framework itself: it is woken when the script has done so.
"""

import os
import sys

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
                            yield found, [part.strip(" \"'()[]\n") for part in line[len(_MARK) :].split(",")]
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
