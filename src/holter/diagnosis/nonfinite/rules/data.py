"""The batch itself held what is non-finite, or a value far beyond all others.

What it sees: an input or target of the first bad step that is NaN or infinite, or one sample thousands of times larger
than the rest, while the weights were still numbers.
Why it matters: one sample of thousands ruins all weights in one step.
May be confused with: an attention mask, which is infinite on purpose; a rate that is too high.
How sure: established when the bad sample was seen in the batch; supported when it is an outlier or only said so.
Cure: drop or repair the sample; where one feature is bad in every sample, what makes it: most often a division by a
deviation of 0.
"""

from __future__ import annotations

import ast

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.lines import data_line
from holter.diagnosis.nonfinite.nonfinite import Nonfinite, bad_input_of, magnitude, nonfinite_of
from holter.diagnosis.nonfinite.repaired_line import repaired_line
from holter.diagnosis.nonfinite.words import evidence_of, figure, first_bad
from holter.finding import Culprit, Cure, Ending, Finding
from holter.record.events.looks import BadInput
from holter.source.edits import before_line
from holter.source.lines import called_name, tree_of

CAUSE = "nan.data"


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Name the sample, what is wrong with it, and the line that the data comes from."""
    seen = nonfinite_of(record)
    found = bad_input_of(seen.event) if seen is not None else None
    if seen is None or found is None or seen.detail != "data":
        return None
    bad, name = found.bad, found.name or "the input"
    sample, index, count, of = found.sample, found.index, found.samples, found.of
    who = f"`{name}`" if name != "the input" else name
    wrong = {"nan": "holds NaN", "inf": "holds an infinity"}.get(bad, "holds a value far beyond all others")
    if bad == "outlier" and magnitude(found.max) is not None:
        wrong = f"holds {figure(magnitude(found.max))} where {figure(magnitude(found.usual))} is usual"
    where = f", in sample {sample} of the batch" if sample is not None and index is None else ""
    where = f", in sample {index} of the dataset ({sample} of its batch)" if index is not None else where
    if found.row is not None:
        where = f", in sample {found.row} of {of or '?'}"
    if found.feature is not None:
        where = f", in feature {found.feature} of every sample"
    more = f" and {count - 1} more" if count is not None and count > 1 and found.feature is None else ""
    claim = f"{first_bad(seen)}: {who} {wrong}{where}{more}"
    line = data_line(record, seen, name.split("[")[0])
    cures = _everywhere(record, found, line) if _in_all(found) else _in_some(record, seen, found, line)
    return Finding(CAUSE, seen.grade, claim, evidence_of(seen), line, cures)


def _in_all(found: BadInput) -> bool:
    """Tell whether dropping the bad samples would drop all of them."""
    return found.feature is not None or (found.of is not None and found.of > 1 and (found.samples or 0) >= found.of)


def _everywhere(record: RecordLike, found: BadInput, line: Culprit | None) -> tuple[Cure, ...]:
    what = f"feature {found.feature}" if found.feature is not None else "every sample"
    how = ""
    if line is not None:
        lines = record.source(line.file)
        row = lines[line.line - 1] if 0 < line.line <= len(lines) else ""
        repaired = repaired_line(row.strip(), "division")
        how = f"- {row.strip()}\n+ {repaired}" if repaired else ""
    title = f"look at what {what} is divided by: a deviation of 0 has to become a small number, x / (std + 1e-8)"
    out = f"or leave {what} out: it says nothing" if found.feature is not None else "or see how the data is read"
    return (Cure(title, how, "changed"), Cure(out, "", "changed"))


def _in_some(record: RecordLike, seen: Nonfinite, found: BadInput, line: Culprit | None) -> tuple[Cure, ...]:
    at = found.index if found.index is not None else found.row
    if found.bad == "outlier":
        which = f"sample {at}" if at is not None else "that sample"
        clip = "clip the inputs to what is plausible: x.clamp(-10, 10) after normalising"
        return (Cure(f"repair or drop {which}", "", "changed"), Cure(clip, "", "changed"))
    drop = f"drop or repair sample {at}" if at is not None else "drop or repair the samples that are not finite"
    numpy = seen.event.framework in ("keras", "tensorflow")
    how = _keeping_the_finite(record.source(line.file), "np" if numpy else "torch") if line is not None else ""
    return (
        Cure(drop, how, "changed"),
        Cure("check the data once before training, and fail with its index there"),
    )


def _keeping_the_finite(lines: list[str], library: str) -> str:
    """Leave the bad samples out above the line that hands whole arrays or tensors to the training."""
    tree = tree_of(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call) or called_name(node) not in ("TensorDataset", "fit"):
            continue
        names = [one.id for one in node.args if isinstance(one, ast.Name)]
        names += [
            word.value.id for word in node.keywords if word.arg in ("x", "y") and isinstance(word.value, ast.Name)
        ]
        if not names or len([one for one in node.args if not isinstance(one, ast.Starred)]) > len(names):
            continue
        finite = " & ".join(f"{library}.isfinite({name}).reshape(len({name}), -1).all(1)" for name in names)
        kept = ", ".join(f"{name}[keep]" for name in names)
        return before_line(lines, node.lineno, f"keep = {finite}", f"{', '.join(names)} = {kept}")
    return ""
