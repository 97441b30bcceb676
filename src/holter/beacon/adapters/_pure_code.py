"""Whether a piece of the user's code may be run once more without anybody noticing: it only computes.

It may assign local names and call what only computes: PyTorch's own functions, tensor methods, modules, and
functions of the user's of which the same is true. Whatever else there is, a print, a file, an attribute that is set,
a counter, a draw from a generator that is not restored, says no.
"""

import ast
import builtins
import linecache
import types

from ..user_frame import is_user_file

_BUILTINS = frozenset(
    ("len", "range", "zip", "enumerate", "float", "int", "tuple", "list", "dict", "sum", "max", "min", "abs", "round",
     "isinstance", "reversed", "sorted", "any", "all", "bool", "str", "hasattr", "getattr", "slice", "super")
)  # fmt: skip
_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If, ast.For, ast.Pass, ast.Assert, ast.Raise, ast.With,
    ast.Break, ast.Continue, ast.Expr, ast.FunctionDef,
)  # fmt: skip
_FORBIDDEN = (
    ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr,
    ast.Delete,
)  # fmt: skip
# Of torch's own functions, those that change the state of the process.
_CHANGES = (
    "print",
    "manual_seed",
    "seed",
    "set_",
    "save",
    "load",
    "backward",
    "step",
    "compile",
    "register",
    "init_",
    "checkpoint",
)
_DEPTH = 6
_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType, type(str.join))


def tree_of(filename):
    """The parsed file, or None."""
    lines = linecache.getlines(filename)
    if not lines or sum(map(len, lines)) > 1_000_000:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None


def function_node(function):
    """The definition of a function of the user's in its file, or None."""
    code = function.__code__
    tree = tree_of(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and getattr(node, "name", "<lambda>") == code.co_name:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            if first == code.co_firstlineno:
                return node
    return None


class Purity:
    """Judges code; what was judged once is remembered."""

    def __init__(self, tensor_class, module_class, modules_pure, roots=("torch", "math"), but=()):
        self.tensor_class = tensor_class
        self.module_class = module_class
        self.modules_pure = modules_pure  # judges a module that is called
        self.roots = roots  # packages whose functions only compute
        self.changes = (*_CHANGES, *but)
        self.known = {}

    def function(self, function, depth=0):
        """True when a function of the user's only computes."""
        owner = getattr(function, "__self__", None)
        function = getattr(function, "__func__", function)
        if not isinstance(function, types.FunctionType) or depth > _DEPTH:
            return False
        code = function.__code__
        if code in self.known:
            return self.known[code]
        self.known[code] = True  # recursion: judged by the rest of it
        node = function_node(function)
        pure = node is not None and not getattr(node, "decorator_list", ())
        if pure:
            env = dict(function.__globals__)
            for name, cell in zip(code.co_freevars, function.__closure__ or ()):  # noqa: B905
                try:
                    env[name] = cell.cell_contents
                except ValueError:
                    pure = False
            body = node.body if isinstance(node, ast.FunctionDef) else [ast.Expr(node.body)]
            own = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
            if owner is not None and code.co_varnames:
                env[code.co_varnames[0]] = owner
                own.discard(code.co_varnames[0])
            pure = pure and self.statements(body, env, own, depth + 1)
        self.known[code] = pure
        return pure

    def statements(self, body, env, own=(), depth=0):
        """True when statements only compute; `env` resolves the names that are not their own."""
        local = set(own)
        nodes = [node for statement in body for node in ast.walk(statement)]
        local |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        # Another name for something that is not this code's own: what is changed through it, changes there.
        aliases = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute, ast.Subscript))
            if _root(node.value) not in local
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if aliases & set(_changed_in_place(nodes)):
            return False
        return all(self._node(node, env, local, depth) for statement in body for node in ast.walk(statement))

    def _node(self, node, env, local, depth):
        if isinstance(node, _FORBIDDEN) or (isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS)):
            return False
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return isinstance(node, ast.Subscript) and _root(node) in local and not _through_attribute(node)
        if isinstance(node, ast.With):
            return all(isinstance(item.context_expr, ast.Call) for item in node.items)
        if isinstance(node, ast.Call):
            # A generator of the user's own would be found further on afterwards.
            drawn = any(word.arg == "generator" for word in node.keywords)
            handed = [*node.args, *(word.value for word in node.keywords)]
            if drawn or not all(self._handed(value, env, local, depth) for value in handed):
                return False
            return self._call(node.func, env, local, depth)
        return True

    def _handed(self, value, env, local, depth):
        """A function or module that is handed on may be called there: then it has to be pure as well."""
        held = _resolve(value, env, local) if isinstance(value, (ast.Name, ast.Attribute)) else None
        code = getattr(getattr(held, "__func__", held), "__code__", None)
        if isinstance(held, self.module_class) or (code is not None and is_user_file(code.co_filename)):
            return self._callable(held, depth)
        return True

    def _call(self, func, env, local, depth):
        if isinstance(func, ast.Name):
            if func.id in local:
                return False
            held = env.get(func.id, getattr(builtins, func.id, None))
            return (func.id in _BUILTINS and held is getattr(builtins, func.id)) or self._callable(held, depth)
        if not isinstance(func, ast.Attribute):
            return False
        held = _resolve(func, env, local)
        if held is not None:
            return self._callable(held, depth)
        root, method = _root(func), func.attr
        if method in ("append", "extend"):
            return root in local
        if method.endswith("_") and not method.endswith("__") and root not in local:
            return False
        # A method of something computed here: one that tensors have.
        known = hasattr(self.tensor_class, method) and not method.startswith(self.changes)
        return known or method in ("items", "keys", "values", "get")

    def _callable(self, held, depth):
        if isinstance(held, self.module_class):
            return self.modules_pure(held)
        module = getattr(held, "__module__", None) or ""
        name = getattr(held, "__name__", "")
        if isinstance(held, types.MethodType) and isinstance(held.__self__, self.tensor_class):
            return not name.endswith("_")
        if isinstance(held, (types.FunctionType, types.MethodType)) and is_user_file(_file_of(held)):
            if isinstance(held, types.MethodType) and isinstance(held.__self__, self.module_class):
                return self.modules_pure(held.__self__) and self.function(held, depth)
            return self.function(held, depth)
        if isinstance(held, types.MethodType) or not isinstance(held, _FUNCTIONS):
            return False  # an object of a library's may keep a state
        owner = getattr(held, "__self__", None)
        module = module or getattr(owner, "__module__", None) or getattr(owner, "__name__", "")
        if module.split(".")[0] in self.roots:
            return not any(word in name or word in module for word in self.changes)
        return False


def _changed_in_place(nodes):
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            yield _root(node.target)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield _root(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            yield _root(node.func)


def _file_of(held):
    return getattr(getattr(held, "__func__", held), "__code__").co_filename


def _root(node):
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _through_attribute(node):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            return True
        node = node.value
    return False


def _resolve(func, env, local):
    """What a dotted name stands for, where all of it can be read without calling anything."""
    names = []
    while isinstance(func, ast.Attribute):
        names.append(func.attr)
        func = func.value
    if not isinstance(func, ast.Name) or (func.id in local and func.id != "self"):
        return None
    held = env.get(func.id)
    for name in reversed(names):
        if held is None:
            return None
        if isinstance(held, types.ModuleType):
            held = getattr(held, name, None)
        else:
            own = getattr(held, "__dict__", {})
            parts = own.get("_modules") or {}
            held = own.get(name) or (parts.get(name) if isinstance(parts, dict) else None) or _method(held, name)
    return held


def _method(held, name):
    for base in type(held).__mro__:
        found = vars(base).get(name)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, held)
    return None
