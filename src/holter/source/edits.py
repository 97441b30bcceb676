"""Changes to the user's own lines, as a diff: the lines as they stand, and as they should be.

Each gives an empty text where the change can't be made safely by reading alone: a statement over several lines, a name
that only the loop knows. A cure then says it in words.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from holter.source.lines import called_name, tree_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def diff_of(*rows: tuple[str, str]) -> str:
    """Write rows of a mark (`-`, `+` or a blank for a line that stays) and a line, less the indentation of them all."""
    width = min((len(line) - len(line.lstrip()) for _, line in rows if line.strip()), default=0)
    return "\n".join(f"{mark} {line[width:].rstrip()}" for mark, line in rows)


def replaced(lines: Sequence[str], node: ast.expr, text: str) -> str:
    """Write an expression that stands on one line anew."""
    return _changed(lines, node.lineno, [(node.col_offset, node.end_col_offset or 0, text)], node.end_lineno)


def wrapped_argument(lines: Sequence[str], line: int, function: str, at: int | None, name: str, wrap: str) -> str:
    """Write the call of a function on a line with one argument, by place or by name, inside of `wrap`: `f({})`."""
    found = [call for call in _calls_on(lines, line) if called_name(call) == function]
    if len(found) != 1 or any(isinstance(one, ast.Starred) for one in found[0].args):
        return ""
    given = [word.value for word in found[0].keywords if word.arg == name]
    if not given and at is not None and at < len(found[0].args):
        given = [found[0].args[at]]
    if len(given) != 1 or given[0].lineno != given[0].end_lineno:
        return ""
    return replaced(lines, given[0], wrap.format(_text(lines, given[0])))


def with_setting(lines: Sequence[str], line: int, functions: Sequence[str], name: str, value: str) -> str:
    """Write the call of one of these functions on a line with a keyword argument set."""
    found = [call for call in _calls_on(lines, line) if called_name(call) in functions]
    if len(found) != 1 or found[0].lineno != found[0].end_lineno:
        return ""
    call = found[0]
    for word in call.keywords:
        if word.arg == name:
            return replaced(lines, word.value, value)
    end = (call.end_col_offset or 1) - 1
    given = [*call.args, *(word.value for word in call.keywords)]
    row = lines[line - 1].encode()[:end].decode(errors="replace").rstrip()
    comma = "" if not given or row.endswith(",") else ","
    return _changed(lines, call.lineno, [(len(row.encode()), end, f"{comma}{' ' if given else ''}{name}={value}")])


def with_decorator_setting(lines: Sequence[str], function: str, decorator: str, name: str, value: str) -> str:
    """Write the decorator of a function with a keyword argument set, with the function's own line below it."""
    found = function_named(lines, function)
    for one in found.decorator_list if found is not None else ():
        if isinstance(one, ast.Call) and called_name(one) == decorator:
            changed = with_setting(lines, one.lineno, (decorator,), name, value)
        elif not isinstance(one, ast.Call) and (getattr(one, "attr", "") or getattr(one, "id", "")) == decorator:
            changed = replaced(lines, one, f"{_text(lines, one)}({name}={value})")
        else:
            continue
        below = found.lineno if found is not None else 0
        return f"{changed}\n  {lines[below - 1].strip()}" if changed and below == one.lineno + 1 else changed
    return ""


def with_value(lines: Sequence[str], line: int, name: str, value: str) -> str:
    """Write a line with another number for the keyword argument or variable of a name."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        given = node.value if isinstance(node, ast.keyword) and node.arg == name else None
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets):
            given = node.value
        if isinstance(given, ast.Constant) and isinstance(given.value, (int, float)) and given.lineno == line:
            return replaced(lines, given, value)
    return ""


def with_argument(lines: Sequence[str], line: int, old: str, new: str) -> str:
    """Write a line with another number for the one argument that is this number now."""
    given = [one for call in _calls_on(lines, line) for one in call.args if isinstance(one, ast.Constant)]
    same = [one for one in given if isinstance(one.value, (int, float)) and f"{one.value:.4g}" == old]
    return replaced(lines, same[0], new) if len(same) == 1 else ""


def without_setting(lines: Sequence[str], line: int, name: str) -> str:
    """Write a line without a keyword argument; none of it where nothing else stands on it."""
    row = lines[line - 1] if 0 < line <= len(lines) else ""
    for call in _calls(tree_of(lines)):
        for word in call.keywords:
            if word.arg != name or word.value.lineno != line or word.value.end_lineno != line:
                continue
            begin, end = _keyword_begins(row, word), word.value.end_col_offset or 0
            before, after = row.encode()[:begin].decode(), row.encode()[end:].decode()
            if not before.strip() and after.strip() in ("", ","):
                return diff_of(("-", row))
            if before.rstrip().endswith(","):
                before = before.rstrip()[:-1]
            elif after.lstrip().startswith(","):
                after = after.lstrip()[1:].lstrip()
            return diff_of(("-", row), ("+", before + after))
    return ""


def before_function(lines: Sequence[str], line: int, decorator: str) -> str:
    """Write a decorator above the function that a line stands in, where it has none yet."""
    found = function_of(lines, line)
    if found is None or found.decorator_list or found.lineno > len(lines):
        return ""
    row = lines[found.lineno - 1]
    return diff_of(("+", row[: len(row) - len(row.lstrip())] + decorator), (" ", row))


def before_line(lines: Sequence[str], line: int, *added: str) -> str:
    """Write new lines above a statement that begins on a line."""
    if not 0 < line <= len(lines):
        return ""
    row = lines[line - 1]
    indent = row[: len(row) - len(row.lstrip())]
    return diff_of(*(("+", indent + one) for one in added), (" ", row))


def before_loop(lines: Sequence[str], line: int) -> str:
    """Move the statement on a line out of the loop around it, where it uses nothing that the loop makes."""
    tree = tree_of(lines)
    loops = (
        [n for n in ast.walk(tree) if isinstance(n, _LOOPS) and any(one.lineno == line for one in n.body)]
        if tree
        else []
    )
    if len(loops) != 1:
        return ""
    loop = loops[0]
    at = next(n for n, one in enumerate(loop.body) if one.lineno == line)
    statement = loop.body[at]
    header = loop.test if isinstance(loop, ast.While) else loop.iter
    if not isinstance(statement, ast.Assign) or statement.end_lineno != line or len(loop.body) < 2 or loop.orelse:
        return ""
    if header.end_lineno != loop.lineno or loop.body[0].lineno <= loop.lineno:
        return ""
    target = loop.target if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    others = [*([target] if target is not None else []), *(one for one in loop.body if one is not statement)]
    made = {name.id for one in others for name in _names(one, ast.Store)}
    if made & {name.id for name in _names(statement, ast.Load, ast.Store)}:
        return ""
    top, row = lines[loop.lineno - 1], lines[line - 1]
    indent = top[: len(top) - len(top.lstrip())]
    between = lines[loop.lineno : line - 1]
    return diff_of(("+", indent + row.strip()), (" ", top), *((" ", one) for one in between if one.strip()), ("-", row))


def function_of(lines: Sequence[str], line: int) -> Function | None:
    """Give the innermost function that a line stands in."""
    tree = tree_of(lines)
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ] if tree is not None else []  # fmt: skip
    return max(around, key=lambda node: node.lineno, default=None)


def function_named(lines: Sequence[str], name: str) -> Function | None:
    """Give the function of a name, where there is just one."""
    tree = tree_of(lines)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ] if tree is not None else []  # fmt: skip
    return found[0] if len(found) == 1 else None


def imported_names(lines: Sequence[str]) -> set[str]:
    """Give the names that a script's imports make."""
    tree = tree_of(lines)
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))] if tree else []
    return {one.asname or one.name.partition(".")[0] for node in found for one in node.names}


def only_filled(lines: Sequence[str], name: str) -> bool:
    """Tell whether a script makes and fills a variable at its top and never looks at it."""
    tree = tree_of(lines)
    if tree is None:
        return False
    calls = {
        id(call.func.value)
        for call in _calls(tree)
        if called_name(call) in ("append", "add") and isinstance(call.func, ast.Attribute)
    }
    read = [node for node in _names(tree, ast.Load) if node.id == name]
    return bool(read) and all(id(node) in calls for node in read)


def without_statement(lines: Sequence[str], line: int) -> str:
    """Take a statement of one line out, where its block keeps another."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(block, list) or len(block) < 2:
                continue
            if any(one.lineno == line == one.end_lineno for one in block):
                return diff_of(("-", lines[line - 1]))
    return ""


def _changed(lines: Sequence[str], line: int, parts: list[tuple[int, int, str]], end_line: int | None = None) -> str:
    if not 0 < line <= len(lines) or (end_line is not None and end_line != line):
        return ""
    row = lines[line - 1].encode()
    for begin, end, text in sorted(parts, reverse=True):
        row = row[:begin] + text.encode() + row[end:]
    return diff_of(("-", lines[line - 1]), ("+", row.decode(errors="replace")))


def _text(lines: Sequence[str], node: ast.expr) -> str:
    return lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode(errors="replace")


def _keyword_begins(row: str, word: ast.keyword) -> int:
    begin = getattr(word, "col_offset", None)
    return begin if begin is not None else row.encode().rfind((word.arg or "").encode(), 0, word.value.col_offset)


def _calls(tree: ast.AST | None) -> Iterator[ast.Call]:
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            yield node


def _calls_on(lines: Sequence[str], line: int) -> list[ast.Call]:
    return [call for call in _calls(tree_of(lines)) if call.lineno == line]


def _names(node: ast.AST, *contexts: type) -> Iterator[ast.Name]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, contexts):
            yield inner
