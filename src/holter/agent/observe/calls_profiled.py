"""The calls of one step, counted by the core of `cProfile`: Python before 3.12.

A profile hook that is written in Python would copy every frame's variables into the dict that `locals()` gives to the
script. This one is not, and knows no lines: of a function's calls those are told that stand in its innermost loop.
"""

import ast
import builtins
from sys import getprofile
from types import CodeType

from ..core.user_frame import is_user_file, user_frame
from .source_calls import tree_of

_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (*_NAMED, ast.Lambda)


class Calls:
    """Counts while it is on; `lines` and `ran` are of (code, line)."""

    def __init__(self, ops, roots):
        self.ops_named = ops
        self.roots = roots
        self.profiler = None
        self.cut, self.watched = False, 0.0

    def begin(self):
        """Start counting; False where others watch already."""
        if getprofile() is not None:
            return False
        from _lsprof import Profiler

        self.calls = self.ops = 0
        self.lines, self.ran = {}, {}
        frame = user_frame()
        # Under way already: the hook sees what it calls, and not that it is called.
        self.root = frame.f_code if frame is not None else None
        self.profiler = Profiler()
        self.profiler.enable(subcalls=True, builtins=True)
        return True

    def pause(self):
        if self.profiler is not None and getprofile() is self.profiler:
            self.profiler.disable()

    def resume(self):
        if self.profiler is not None and getprofile() is None:
            self.profiler.enable(subcalls=True, builtins=True)

    def end(self):
        """Stop counting, and take the counts over."""
        self.pause()
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            self._take(profiler.getstats())

    def _take(self, entries):
        callers, inner = {}, {}  # code -> name -> how often it was called from there, for how long
        for entry in entries:
            self.calls += entry.callcount
            if not isinstance(entry.code, CodeType) and any(name in entry.code for name in self.ops_named):
                self.ops += entry.callcount
            for one in entry.calls or ():
                inner[one.code] = inner.get(one.code, 0) + one.callcount
                self._add(callers, entry.code, one.code, one.callcount, one.totaltime)
        for entry in entries:
            n = entry.callcount - inner.get(entry.code, 0)
            self._add(callers, self.root, entry.code, n, entry.totaltime * n / max(1, entry.callcount))
        spent = {}
        for code, called in callers.items():
            self._place(code, called, spent)
        total = sum(spent.values())
        if self.ops and total:
            self.ran = {key: round(self.ops * took / total) for key, took in spent.items()}

    def _add(self, callers, code, callee, n, took):
        if n <= 0 or not isinstance(code, CodeType) or not is_user_file(code.co_filename):
            return
        name = self._leads_out(callee)
        if name and not code.co_filename.startswith("<"):
            called = callers.setdefault(code, {})
            before = called.get(name, (0, 0.0))
            called[name] = before[0] + n, before[1] + took

    def _leads_out(self, code):
        """The name of a library's function, or of a framework's builtin; empty for the user's own and for others."""
        if isinstance(code, CodeType):
            return "" if is_user_file(code.co_filename) else code.co_name
        if not any(root in code for root in self.roots):
            return ""
        quoted = code.split("'")
        return quoted[1] if len(quoted) > 2 else code.strip("<>").rpartition(".")[2].split()[0]

    def _place(self, code, called, spent):
        """Give calls to lines by their names; a model is called by any name, so its calls are those left over."""
        named, rest = {}, []
        for depth, name, line in _calls_in(code) if called else ():
            (named.setdefault(name, []) if name in called else rest).append((depth, line))
        for name, (n, took) in called.items():
            places = named.get(name) or rest or [(0, code.co_firstlineno)]
            deepest = max(depth for depth, _ in places)
            lines = [line for depth, line in places if depth == deepest]
            for line in lines:
                key = code, line
                self.lines[key] = self.lines.get(key, 0) + n // len(lines)
                spent[key] = spent.get(key, 0.0) + took / len(lines)


def _calls_in(code):
    """The calls that a function's own source holds: how many loops are around each, its name and its line."""
    tree = tree_of(code.co_filename)
    if tree is None:
        return
    if code.co_name == "<module>":
        top = tree
    else:
        # Imports, `except` and patterns give names too, and have no body of their own.
        own = (node for node in ast.walk(tree) if isinstance(node, _NAMED) and node.name == code.co_name)
        own = (n for n in own if min([n.lineno, *(d.lineno for d in n.decorator_list)]) == code.co_firstlineno)
        top = next(own, None)
    waiting = [(0, child) for child in ast.iter_child_nodes(top)] if top is not None else []
    while waiting:
        depth, node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            if not hasattr(builtins, name):
                yield depth, name, node.lineno
        inside = depth + isinstance(node, _LOOPS)
        waiting.extend((inside, child) for child in ast.iter_child_nodes(node))
