"""What a run under GitHub Actions leaves on its page: an annotation at the line, and the verdict in the job summary.

The annotation goes to stderr, which the runner reads as it reads stdout: what the training prints there stays as it is,
to the byte. The decision is in docs/decisions/0034-annotations-on-stderr.md.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holter.check.formats.github import data, prop
from holter.commands._tell import Stderr
from holter.finding import Verdict

_MAX_SUMMARY_BYTES = 900_000  # GitHub shows nothing of a step's summary above 1 MiB


def in_workflow() -> bool:
    """Tell whether GitHub Actions runs us; other systems set other variables, and get nothing."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def show_in_workflow(folder: Path) -> None:
    """Annotate a run that failed, or in which something was found; say nothing of a healthy one."""
    from holter.diagnosis.core.doctor import verdict
    from holter.diagnosis.core.examined import examined
    from holter.figures.document import document_of, mask
    from holter.record.reader import open_record
    from holter.views.markdown import markdown_of

    record = examined(open_record(folder))
    found = verdict(record)
    if found.healthy:
        return
    line = Stderr()
    line.write(mask(annotation(found)) + "\n")
    line.send()
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        # A full disk or a summary that can't be written is no reason to lose the run's exit code.
        with contextlib.suppress(OSError):
            page = markdown_of(document_of(record, found)).encode("utf-8", "replace")
            with open(path, "ab") as file:
                file.write(page[:_MAX_SUMMARY_BYTES] + b"\n")


def annotation(found: Verdict) -> str:
    """One workflow command: an error for a run that failed, a warning for one that came through with a finding."""
    first = found.findings[0] if found.findings else None
    level = "warning" if found.ending.kind == "completed" else "error"
    claim = found.ending.claim.removeprefix("The run ")
    words = [f"{claim[:1].upper()}{claim[1:]}."]
    title, where = "Holter", ""
    if first is not None:
        words.append(f"{'Perhaps: ' if first.grade == 'hypothesis' else ''}{first.claim[:1].upper()}{first.claim[1:]}.")
        words += [f"Cure: {first.cures[0].title}"] if first.cures else []
        title = f"Holter: {first.cause}, {first.grade}"
        if first.culprit is not None:
            where = f"file={prop(_from_the_workspace(first.culprit.file))},line={first.culprit.line},"
    return f"::{level} {where}title={prop(title)}::{data(chr(10).join(words))}"


def _from_the_workspace(path: str) -> str:
    """The file as the repository names it: GitHub shows an annotation at a line of the repository's own only."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    inside = workspace and os.path.isabs(path) and os.path.commonpath([workspace, path]) == os.path.normpath(workspace)
    return os.path.relpath(path, workspace) if inside else path
