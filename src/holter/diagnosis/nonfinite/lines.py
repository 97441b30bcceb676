"""The user's lines that a NaN leads to: optimizer, data, precision, operation; from the record and its sources."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence

from holter.diagnosis.core.evidence import first_in_sources, user_files
from holter.diagnosis.core.frames import Placed, culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.nonfinite import Nonfinite, edge_calls
from holter.finding import Culprit
from holter.record.events.agent import Made
from holter.source.lines import called_name, calls_of, culprit_at, tree_of
from holter.source.provenance import provenance

_HALF_CALLS = ("half", "autocast", "set_global_policy", "set_dtype_policy", "set_default_dtype", "DTypePolicy")
_HALF_WORDS = re.compile(r"float16\b|\bhalf\(\)|fp16\s*=\s*True|precision\s*=\s*[\"']?16")
_NAN_WORDS = re.compile(
    r"\b(?:np|numpy|torch|math|tf)\.(?:nan|inf|NaN|Inf)\b|float\(\s*[\"'][-+]?(?:nan|inf\w*)[\"']\s*\)|\bnan\b",
    re.IGNORECASE,
)
_READERS = ("read_csv", "loadtxt", "genfromtxt", "load", "read_parquet", "read_table", "from_numpy", "fromfile")
_EDGES = ("log", "log2", "log10", "sqrt", "divide", "true_divide", "reciprocal", "arccos", "arcsin", "power")
_SPREADS = re.compile(r"\bstd\b|\.std\(|\bsigma\b|\bnorm\(|\.sum\(|\.ptp\(|\bscale\b|max\w*\W.*min|\.max\(")
_BOUNDED = re.compile(r"eps|1e-|e-0|clip|clamp|maximum|max\(|len\(|shape|size|\+ ?1", re.IGNORECASE)
_OPTIMIZERS = ("TrainingArguments", "compile", "configure_optimizers")


def made_line(record: RecordLike, seen: Nonfinite, what: str) -> Culprit | None:
    """Give the line that made the optimizer or loader which was in use."""
    pid = seen.event.pid
    made = [
        event
        for event in record.of(Made)
        if event.what == what and event.file and (pid is None or event.pid in (pid, None))
        if event.m <= seen.event.m + 1
    ]
    return culprit_on(made[-1]) if made else None


def optimizer_line(record: RecordLike, seen: Nonfinite) -> Culprit | None:
    """Give the line where the learning rate is set: the optimizer's own, or the Trainer's arguments."""
    made = made_line(record, seen, "optimizer")
    if made is not None and "train(" not in made.code and "fit(" not in made.code:
        return made
    return first_in_sources(record, _sets_the_rate) or made


def line_that_moves_the_rate(record: RecordLike) -> Culprit | None:
    """Give the line on which the script itself sets the rate of an optimizer's groups: `group["lr"] = ...`."""
    return first_in_sources(record, _moves_the_rate)


def _moves_the_rate(lines: list[str]) -> int | None:
    tree = tree_of(lines)
    assigned = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign))] if tree else []
    for node in assigned:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            key = target.slice if isinstance(target, ast.Subscript) else None
            if isinstance(key, ast.Constant) and key.value == "lr":
                return node.lineno
    return None


def number_written(record: RecordLike, value: float) -> tuple[Culprit, ast.Constant] | None:
    """Give the one place of the script where a number is written; None where there are several, or none."""
    found = [
        (file, lines, node)
        for file in user_files(record)
        for lines in [record.source(file)]
        for node in ast.walk(tree_of(lines) or ast.Module([], []))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and math.isclose(node.value, value)
    ]
    if len(found) != 1:
        return None
    file, lines, node = found[0]
    return culprit_at(file, lines, node.lineno), node


def _sets_the_rate(lines: list[str]) -> int | None:
    line = next((line for line, _ in calls_of(lines, _OPTIMIZERS)), None)
    tree = tree_of(lines) if line is not None else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.keyword) and node.arg in ("learning_rate", "lr") and node.value.lineno >= (line or 0):
            return node.value.lineno
    return line


def half_line(record: RecordLike) -> Culprit | None:
    """Give the line that asks for half precision."""
    return first_in_sources(record, _asks_for_half)


def _asks_for_half(lines: list[str]) -> int | None:
    called = [line for line, _ in calls_of(lines, _HALF_CALLS)]
    wanted = [line for line in called if _HALF_WORDS.search(lines[line - 1])] or [
        at for at, code in enumerate(lines, 1) if _HALF_WORDS.search(code.split("#")[0])
    ]
    # Of several, the one that turns the model: data follows its dtype.
    of_model = [line for line in wanted if re.search(r"\bmodel|\bnet\b|\bnn\.|autocast|policy", lines[line - 1])]
    return next(iter(of_model or wanted or called), None)


def data_line(record: RecordLike, seen: Nonfinite, name: str = "") -> Culprit | None:
    """Give the line that puts what is non-finite into the data, else the one that reads, makes or loads it.

    Where the variable is known, what it was made of is looked at first.
    """

    inputs = seen.event.inputs
    sampled = inputs is not None and inputs.index is not None

    def puts_it_in(lines: list[str]) -> int | None:
        own, tree = provenance(lines, name), tree_of(lines)
        whole_script = [tree] if tree is not None else []
        # What is no sample of a dataset was made for this step: it was computed sooner than read.
        made = [line for line, _ in edge_calls(lines)] if not own and not sampled else []
        places = (*_suspects(own), *_divides(own), *made, *_suspects(whole_script), *_within(own[:1], _is_statement))
        return next(iter(places), None)

    return first_in_sources(record, puts_it_in) or made_line(record, seen, "loader")


def _suspects(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """Lines that write what is non-finite, then those that may compute it, then those that read data."""
    yield from _within(nodes, _writes_nan)
    yield from _within(nodes, _computes_nan)
    yield from _within(nodes, lambda node: isinstance(node, ast.Call) and called_name(node) in _READERS)


def _divides(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """Divisions that nothing keeps from being by zero."""
    yield from _within(
        nodes,
        lambda node: (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and not isinstance(node.right, ast.Constant)
            and not _BOUNDED.search(ast.unparse(node.right))
        ),
    )


def _within(nodes: Sequence[ast.AST], is_one: Callable[[ast.AST], bool]) -> Iterator[int]:
    for node in nodes:
        for inner in ast.walk(node):
            if is_one(inner):
                yield inner.lineno  # type: ignore[attr-defined]


def _is_statement(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt)


def _writes_nan(node: ast.AST) -> bool:
    """Assigns a NaN or an infinity into something, and does not only compare or start a best."""
    if isinstance(node, ast.Assign) and any(isinstance(target, ast.Subscript) for target in node.targets):
        return bool(_NAN_WORDS.search(ast.unparse(node.value)))
    if isinstance(node, (ast.Assign, ast.Return)) and node.value is not None:
        code = ast.unparse(node.value)
        return bool(_NAN_WORDS.search(code) and re.search(r"\b(?:where|full|choice|array|tensor|fill\w*)\b", code))
    put = isinstance(node, ast.Call) and called_name(node) in ("append", "extend", "fill", "fill_", "full_like")
    return put and bool(_NAN_WORDS.search(ast.unparse(node)))


def _computes_nan(node: ast.AST) -> bool:
    """Prepares data with one of NumPy's functions that have an edge, or divides by a deviation or a sum."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _EDGES:
        masked = any(word.arg == "where" for word in node.keywords)
        return getattr(node.func.value, "id", "") in ("np", "numpy") and not masked
    divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    return divides and bool(_SPREADS.search(ast.unparse(node.right)))  # type: ignore[attr-defined]


def operation_line(seen: Nonfinite) -> Culprit | None:
    """Give the line of the operation, where the look or the graph knows it."""
    event = seen.event
    sure = [slope for slope in event.slopes if slope.sure] or event.slopes
    places: list[Placed] = [event, *(place for slope in sure for place in slope.lines), *event.lines]
    return next((line for place in places if (line := culprit_on(place)) is not None), None)
