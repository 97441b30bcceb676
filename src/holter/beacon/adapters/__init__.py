"""One file per framework. Each names the modules it waits for in `WAITS_FOR` and offers `install(guest, module)`.

An adapter imports nothing of its framework itself: it is woken when the script has done so.
"""

import os
import sys

# Read from the files' first lines instead of importing them: a process that trains nothing pays for no adapter.
_MARK = "WAITS_FOR = "


def _waits(folder):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") and not name.startswith("_"):
            with open(os.path.join(folder, name), encoding="utf-8") as source:
                for line in source:
                    if line.startswith(_MARK):
                        yield name[:-3], [part.strip(" \"'()[]\n") for part in line[len(_MARK) :].split(",")]
                        break


def wait_for_frameworks(guest):
    """Arm the import hook for every adapter in this folder."""
    for name, modules in _waits(os.path.dirname(os.path.abspath(__file__))):
        for module_name in filter(None, modules):
            guest.hook.when_imported(module_name, _waker(guest, name))


def _waker(guest, name):
    def wake(module):
        from importlib import import_module

        adapter = import_module(__name__ + "." + name)
        top = sys.modules.get(module.__name__.partition(".")[0], module)
        version = str(getattr(top, "__version__", "unknown"))
        guest.adapter(module.__name__, version, lambda: adapter.install(guest, module))

    return wake
