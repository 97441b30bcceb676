"""Losses or states are kept together with the autograd graph that made them.

What it sees: a list, attribute or variable whose tensors still have a `grad_fn` and become more with the steps, or a
graph behind one variable that gets longer, in a process whose memory grows.
Why it matters: each kept loss keeps every activation of its step; memory grows by a whole step's worth each time.
May be confused with: results that are kept without a graph, told as tensors-kept; a graph that is needed until the
backward of an accumulated loss, which does not grow from step to step.
How sure: established when what it holds, weighed, is most of the measured growth; supported when the trend is clear
and such a holder grows with it; else a hypothesis.
Cure: keep the number, `.item()`, or `.detach()` the tensor; truncate backpropagation through time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import LeakCause, leak_cause
from holter.diagnosis.leak.growing_line import Growing
from holter.diagnosis.leak.retained import Holder
from holter.diagnosis.leak.retained_line import line_of
from holter.finding import Cure, Ending, Finding
from holter.source.edits import before_function, function_of, imported_names
from holter.source.lines import called_name, is_named, tree_of
from holter.source.syntax import parse
from holter.units import count

CAUSE = "leak.graph-retained"
_WORDS = re.compile(r"[A-Z]?[a-z]+")
_NUMBERS = re.compile(r"loss(?:es)?|mse|mae|nll|error|perplexity|acc(?:uracy)?")
_TENSORS = re.compile(
    r"out(?:put)?s?|logits?|pred(?:iction)?s?|hidden|states?|embeddings?|features?|activations?|scores?|probs?|latents?|[hyz]"
)
_MODELS = re.compile(r"model|net|network|forward")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name what keeps the graphs, how many, and the line that puts them there."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE or found.holder is None:
        return None
    culprit, statement = line_of(record, found.holder)
    claim = f"{_kept(found.holder)}: {found.words}"
    lines = record.source(culprit.file) if culprit is not None else []
    line = culprit.line if culprit is not None else 0
    cures = _from_itself(found.holder, statement, lines) or _cures(found, statement, lines, line)
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures, found.forecast)


def _kept(holder: Holder) -> str:
    if holder.single:
        many = f" ({count(holder.nodes)} nodes by {holder.seen_at})" if holder.graph_grew else ""
        each = "backward" if holder.backwards else "step"
        return f"{holder.where} is never cut from the autograd graph, which gets longer with every {each}{many}"
    each = "batch of the validation" if holder.between_steps else "backward" if holder.backwards else "step"
    return f"each {each} keeps a tensor with its autograd graph in {holder.where} ({holder.entries})"


def _from_itself(holder: Holder, statement: Growing | None, lines: list[str]) -> tuple[Cure, ...]:
    """Give the cure of a state that is made from itself: it is cut where it is used, not where it is made, since the
    loss may need what was made."""
    if statement is None or statement.how != "=":
        return ()
    in_parts = holder.name.endswith("]")
    cut = cut_where_used(statement.code, holder.variable, lines, in_parts=in_parts)
    if cut is None:
        return ()
    title = f"cut `{holder.variable}` from the graph of the steps before: gradients then end there"
    return (Cure(title, f"- {statement.code}\n+ {cut}", "changed"),)


def _cures(found: LeakCause, statement: Growing | None, lines: list[str], line: int) -> tuple[Cure, ...]:
    holder = found.holder
    assert holder is not None
    scalar = holder.shape == () or (holder.shape is not None and all(n == 1 for n in holder.shape))
    cut = ".item()" if scalar and (statement is None or statement.how != "=") else ".detach()"
    how = ""
    if statement is not None and statement.kept and statement.how != "join":
        parts = cut_parts(statement.kept)
        kept = statement.keeping_its(cut) if parts is None else statement.keeping(parts)
        how = f"- {statement.code}\n+ {kept}" if kept != statement.code else ""
        cut = cut if parts is None else ".item() for a number, .detach() for a tensor"
    title = "keep the number, not the tensor" if cut == ".item()" else "cut it from its graph before keeping it"
    cures = [Cure(f"{title}: {cut}", how)]
    if holder.between_steps:
        cures.insert(0, Cure("make no graph where nothing is trained: torch.no_grad()", _no_graph(lines, line)))
    return tuple(cures)


def _no_graph(lines: list[str], line: int) -> str:
    """Put `no_grad` above the function that a line stands in, where nothing is trained in it."""
    function = function_of(lines, line)
    if function is None or any(called_name(n) == "backward" for n in ast.walk(function) if isinstance(n, ast.Call)):
        return ""
    return before_function(lines, line, "@torch.no_grad()") if "torch" in imported_names(lines) else ""


def cut_parts(kept: str) -> str | None:
    """Give the display with `.item()` or `.detach()` on its tensors, as their names tell; None for what is no display.

    A part whose name tells nothing may be a number or a text, and stays as it is.
    """
    try:
        tree = parse(f"({kept})").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return None
    value = tree.value if isinstance(tree, ast.Expr) else None
    if isinstance(value, (ast.Tuple, ast.List)):
        parts = value.elts
    elif isinstance(value, ast.Dict):
        parts = value.values
    else:
        return None
    line = f"({kept})".encode()
    for part in sorted(parts, key=lambda one: -one.col_offset):
        call = _call_for(part)
        if call and part.lineno == part.end_lineno == 1:
            end = part.end_col_offset or 0
            line = line[:end] + call.encode() + line[end:]
    return line.decode()[1:-1]


def cut_where_used(code: str, variable: str, lines: Sequence[str], *, in_parts: bool) -> str | None:
    """Give `h = cell(x, h)` as `h = cell(x, h.detach())`: what the step computes keeps its gradient, and the steps
    before it are let go. None for a statement that does not make the variable from itself."""
    try:
        statement = parse(code).body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return None
    if not isinstance(statement, ast.Assign) or not code.isascii():
        return None
    used = [part for part in ast.walk(statement.value) if is_named(part, variable)]
    arguments = [id(one) for part in ast.walk(statement.value) if isinstance(part, ast.Call) for one in part.args]
    maybe_none = _begins_as_none(lines, variable)
    for part in sorted(used, key=lambda one: -one.col_offset):
        end = part.end_col_offset or 0
        name = code[part.col_offset : end]
        cut = f"tuple(part.detach() for part in {name})" if in_parts else f"{name}.detach()"
        if maybe_none:
            cut = f"None if {name} is None else {cut}"
            cut = cut if id(part) in arguments else f"({cut})"
        code = code[: part.col_offset] + cut + code[end:]
    return code if used else None


def _begins_as_none(lines: Sequence[str], variable: str) -> bool:
    """Tell whether the script sets it to None, in whatever assignment."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                if any(
                    is_named(to, variable) and isinstance(of, ast.Constant) and of.value is None for to, of in pairs
                ):
                    return True
    return False


def _call_for(part: ast.expr) -> str:
    if isinstance(part, ast.Call):
        name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
        if name in ("item", "detach", "float", "int", "len", "str", "cpu", "numpy", "tolist"):
            return ""
        return ".item()" if _says(name, _NUMBERS) else ".detach()" if _says(name, _MODELS) else ""
    name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
    return ".item()" if _says(name, _NUMBERS) else ".detach()" if _says(name, _TENSORS) else ""


def _says(name: str, words: re.Pattern[str]) -> bool:
    return any(words.fullmatch(word.lower()) for word in _WORDS.findall(name))
