"""The loss became non-finite and stayed so, and why is not known.

What it sees: a loss, gradient or weight that is non-finite, with no finite loss after it, where none of the reasons
could be shown: on a GPU, or under a compiler, little is left to look at.
Why it matters: everything that was computed from there on is lost, whatever the exit code says.
May be confused with: a loss scaler's skipped steps and a single bad batch, after which losses are numbers again.
How sure: established, for it is a fact; what may have led to it stands beside it as a hypothesis.
Cure: run the first steps before it on the CPU or with anomaly detection, which name the operation.
"""

from __future__ import annotations

from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.nonfinite.nonfinite import Nonfinite, lasting
from holter.diagnosis.nonfinite.words import evidence_of, first_bad
from holter.finding import Cure, Ending, Finding
from holter.units import count

CAUSE = "nan.unexplained"
EXPLAINS = False


def examine(record: RecordLike, _ending: Ending) -> Finding | None:
    """Say that it is so, since when, and for how long."""
    seen = lasting(record)
    if seen is None or seen.grade != "hypothesis":
        return None
    claim = f"{first_bad(seen)}{_since(record, seen)}; why could not be seen"
    return Finding(CAUSE, "established", claim, evidence_of(seen), None, _cures(seen))


def _since(record: RecordLike, seen: Nonfinite) -> str:
    last = progress_of(record).step
    if seen.step is None or last is None or last <= seen.step:
        return ""
    so_far = "so far" if record.live else "to the end"
    return f" and stayed so {so_far}, {count(last - seen.step)} steps"


def _cures(seen: Nonfinite) -> tuple[Cure, ...]:
    look = "torch.autograd.set_detect_anomaly(True) shortly before that step; it is slow, and names the line"
    if seen.event.framework in ("keras", "tensorflow"):
        look = "tf.debugging.enable_check_numerics() at the top of the script; it is slow, and names the line"
    return (
        Cure("have the framework stop at the operation that makes it", look),
        Cure("stop the run when its loss is not finite", "if not math.isfinite(loss): raise SystemExit(1)"),
    )
