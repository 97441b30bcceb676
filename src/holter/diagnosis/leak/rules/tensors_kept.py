"""Results pile up: a list, dict, history, callback or array holds more with every step.

What it sees: a container or array, found by name inside the process, that grew with the memory of the process.
Why it matters: memory goes up by what each step leaves behind, until there is none; a smaller batch only delays it.
May be confused with: a buffer that fills and then stays (its bound is looked for), a cache (looked up again), tensors
with their autograd graph.
How sure: established when what it holds is most of the measured growth; supported when the trend is clear and the
holder is named but explains less; else a hypothesis.
Cure: keep numbers instead of tensors, write results out, or bound the container.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.leak.cause import LeakCause, leak_cause
from holter.diagnosis.leak.growing_line import Growing
from holter.diagnosis.leak.retained import Holder, entries_that_fit
from holter.diagnosis.leak.retained_line import handed_to, line_of, made_line
from holter.finding import Cure, Ending, Finding
from holter.source.edits import imported_names
from holter.units import size

CAUSE = "leak.tensors-kept"

_WORDS = {"tensor": "tensors", "array": "arrays", "image": "images", "text": "strings", "number": "numbers"}
_BYTES = ("bytes", "bytearray", "memoryview")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the container, its growth and the line that fills it."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE:
        return None
    if found.holder is None:
        return _seen_from_outside(found) if found.gathered is not None else None
    culprit, statement = line_of(record, found.holder)
    claim = f"{_kept(found.holder)}: {found.words}"
    cures = _cures(record, found, found.holder, statement)
    return Finding(CAUSE, found.grade, claim, found.evidence, culprit, cures, found.forecast)


def _seen_from_outside(found: LeakCause) -> Finding:
    """Tell of a loop that only asks a model: its results pile up, with their graphs where nothing forbids one."""
    assert found.gathered is not None
    cures = (
        Cure("make no graph where nothing is trained", "+ with torch.no_grad():"),
        Cure("write each result out, or keep only the numbers you need of it", "", "equivalent"),
    )
    claim = f"each pass of the loop keeps more on this line: {found.words}"
    return Finding(CAUSE, found.grade, claim, found.evidence, found.gathered.culprit, cures)


def _kept(holder: Holder) -> str:
    if holder.single:
        return f"{holder.where} gets larger and larger, {size(holder.held)} by step {holder.step}"
    what = "blocks of bytes" if holder.element in _BYTES else _WORDS.get(holder.kind, "objects")
    return f"{what} pile up in {holder.where} ({holder.entries})"


def _cures(record: RecordLike, found: LeakCause, holder: Holder, statement: Growing | None) -> tuple[Cure, ...]:
    mean = Cure("keep a running sum or mean of it instead", "", "equivalent")
    if statement is not None and statement.how == "join":
        written = "write each part out, or into an array of the final size made before the loop"
        return (Cure(written, "", "equivalent"), mean)
    handed = handed_to(record, holder) if statement is None and holder.scope == "attribute" else None
    if handed is not None and handed[1]:
        emptied = f"empty it after each epoch, such as with {handed[1]}.reset(): it keeps all that it is handed"
        return (Cure(emptied, "", "equivalent"), mean)
    fits = entries_that_fit(holder, found.leak.curve.limit if found.leak is not None else None)
    bound = made_line(record, holder)
    how, deque = "", "collections.deque"
    if bound is not None and bound.code.endswith(("= []", "= deque()", "= list()")):
        known = imported_names(record.source(bound.file))
        name = bound.code.partition("=")[0].rstrip()
        deque = "deque" if "deque" in known else deque
        how = f"- {bound.code}\n+ {name} = {deque}(maxlen={fits})" if known & {"deque", "collections"} else ""
    number = ""
    if statement is not None and statement.simple and holder.kind == "tensor" and statement.how == "append":
        number = f"- {statement.code}\n+ {statement.keeping_its('.mean().item()')}"
    numbers = "keep only the numbers you need of each, or write them to disk and clear it after each epoch"
    bounded = f"bound it to the newest entries: {deque}(maxlen={fits})"
    return (Cure(numbers, number, "equivalent"), Cure(bounded, how, "equivalent"))
