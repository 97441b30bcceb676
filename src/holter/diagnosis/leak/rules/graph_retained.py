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


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name what keeps the graphs, how many, and the line that puts them there."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE or found.holder is None:
        return None
    culprit, statement = line_of(record, found.holder)
    claim = f"{_kept(found)}: {found.words}"
    lines = record.source(culprit.file) if culprit is not None else []
    line = culprit.line if culprit is not None else 0
    cures = _from_itself(found.holder, statement, lines) or _cures(found, statement, lines, line)
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures, found.forecast)


def _kept(found: LeakCause) -> str:
    holder = found.holder
    assert holder is not None
    if holder.shape == () and found.leak is None:
        return f"{holder.where} is summed up with the autograd graph of each of its terms"
    if holder.single:
        many = f" ({count(holder.nodes)} nodes by {holder.seen_at})" if holder.graph_grew else ""
        each = "backward" if holder.backwards else "step"
        return f"{holder.where} is never cut from the autograd graph, which gets longer with every {each}{many}"
    if holder.kind == "tape":
        return f"each GradientTape is kept, with all that it recorded, in {holder.where} ({holder.entries})"
    steps = holder.step - holder.step_before
    if not holder.between_steps and not holder.backwards and holder.length < 0.5 * steps:
        return f"tensors are kept with their autograd graph in {holder.where} ({holder.entries})"
    each = "batch of the validation" if holder.between_steps else "backward" if holder.backwards else "step"
    return f"each {each} keeps a tensor with its autograd graph in {holder.where} ({holder.entries})"


def _from_itself(holder: Holder, statement: Growing | None, lines: list[str]) -> tuple[Cure, ...]:
    """Give the cure of a state that is made from itself: it is cut where it is used, not where it is made, since the
    loss may need what was made."""
    if statement is None or statement.how != "=":
        return ()
    nested = holder.name.endswith("]")
    cut = cut_where_used(statement.code, holder.variable, lines, nested=nested)
    if cut is None:
        return ()
    title = f"cut `{holder.variable}` from the graph of the steps before: gradients then end there"
    return (Cure(title, f"- {statement.code}\n+ {cut}", "changed"),)


def _cures(found: LeakCause, statement: Growing | None, lines: list[str], line: int) -> tuple[Cure, ...]:
    holder = found.holder
    assert holder is not None
    if holder.kind == "tape":
        return (Cure("take the gradients from the tape and keep those or their numbers; let go of the tape"),)
    scalar = holder.shape == () or (holder.shape is not None and all(n == 1 for n in holder.shape))
    cut = ".item()" if scalar and (statement is None or statement.how != "=") else ".detach()"
    how = ""
    if statement is not None and statement.kept and statement.how != "join":
        if _is_display(statement.kept):
            cut = ".item() for a number, .detach() for a tensor"  # which part is which, nobody has seen
        else:
            how = f"- {statement.code}\n+ {statement.keeping_its(cut)}"
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


def _is_display(kept: str) -> bool:
    """Tell whether several things are kept as one: a tuple, a list or a dict as it is written."""
    try:
        statement = parse(f"({kept})").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return False
    return isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Tuple, ast.List, ast.Dict))


def cut_where_used(code: str, variable: str, lines: Sequence[str], *, nested: bool) -> str | None:
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
        cut = f"tuple(part.detach() for part in {name})" if nested else f"{name}.detach()"
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
