"""The batch itself held what is non-finite, or a value far beyond all others.

What it sees: an input or target of the first bad step that is NaN or infinite, or one sample thousands of times larger
than the rest, while the weights were still numbers.
Why it matters: one sample of thousands ruins all weights in one step.
May be confused with: an attention mask, which is infinite on purpose; a rate that is too high.
How sure: established when the bad sample was seen in the batch; supported when it is an outlier or only said so.
Cure: drop or repair the sample, and check the data before training.
"""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.lines import data_line
from holter.diagnosis.nonfinite.nonfinite import bad_input_of, magnitude, nonfinite_of
from holter.diagnosis.nonfinite.words import evidence_of, figure, first_bad
from holter.finding import Cure, Ending, Finding

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
    at = index if index is not None else found.row
    drop = f"drop or repair sample {at}" if at is not None else "drop or repair the samples that are not finite"
    check = "keep = torch.isfinite(x).flatten(1).all(1); x, y = x[keep], y[keep]"
    if seen.event.framework in ("keras", "tensorflow"):
        check = "keep = np.isfinite(x).reshape(len(x), -1).all(1); x, y = x[keep], y[keep]"
    if bad == "outlier":
        check = "clip the inputs to what is plausible, e.g. x.clamp(-10, 10) after normalising"
    cures = (Cure(drop, check, "changed"), Cure("check the data once before training, and fail with its index there"))
    return Finding(CAUSE, seen.grade, claim, evidence_of(seen), data_line(record, seen, name.split("[")[0]), cures)
