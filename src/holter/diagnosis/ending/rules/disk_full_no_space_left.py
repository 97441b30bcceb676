"""A write that failed for want of disk space.

What it sees: ENOSPC or EDQUOT in the exception, or in the output of a run that did not complete.
Why it matters: checkpoints and logs fill a disk at a random epoch, and the write that fails is seldom theirs.
May be confused with: a full /dev/shm, which gives the same error and is told as `resource.shared-memory`.
How sure: established when the exception says so; supported when only the output does and the disk reads as full;
a checkpoint that broke off for a reason that nothing names is a hypothesis.
Cure: keep fewer checkpoints, or write elsewhere.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import fullest_disk
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_frame, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import Raised, printed_text
from holter.finding import Culprit, Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import SaveFailed
from holter.record.events.timeline import FileSystem
from holter.source.lines import calls_of, culprit_at
from holter.units import size

CAUSE = "disk-full"

_FULL = re.compile(
    r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]|\bENOSPC\b|[Qq]uota exceeded|"
    r"PytorchStreamWriter failed writing file|inline_container\.cc.{0,80}unexpected pos|iostream error"
)
_SURE = re.compile(r"No space left on device|\[Errno (?:28|122)\]|Disk quota exceeded|\bENOSPC\b")
_PATH = re.compile(r"(?:No space left on device|Disk quota exceeded):? '(?P<path>[^'\n]{1,500})'")
_BROKE_OFF = re.compile(r"iostream error|inline_container\.cc.{0,80}unexpected pos")
# Callbacks that write, by the file they live in and the name that scripts call them by.
_CALLBACKS = {
    "model_checkpoint": "ModelCheckpoint",
    "backup_and_restore": "BackupAndRestore",
    "csv_logger": "CSVLogger",
    "tensorboard": "TensorBoard",
}
_CALLBACK = re.compile(rf"[/\\]({'|'.join(_CALLBACKS)})\.py$")
_FULL_BELOW_BYTES = 10e6
_SOME = 2e9


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the failed write, the path and the space that was left."""
    if ending.kind in ("completed", "running", "interrupted", "hung"):
        return None
    raised = raised_at_end(record)
    message = message_of(raised)
    in_output = _SURE.search(printed_text(record)[-20000:])
    if not _FULL.search(message) and not (in_output and ending.kind in ("crashed", "stopped-early", "exception")):
        return None
    named = _PATH.search(message) or _PATH.search(printed_text(record))
    path = named["path"] if named else ""
    if "/dev/shm" in message + path or "torch_shm" in message or "shared memory" in message:
        return None
    disk = _disk_of_save(record) or fullest_disk(record, path)
    free, total = disk.free, disk.total
    full = free is not None and (free < _FULL_BELOW_BYTES or free < 0.01 * (total or 0) or disk.inodes_free == 0)
    sure = bool(_SURE.search(message))
    if not sure and not full and not _BROKE_OFF.search(message):
        return None
    # A file that broke off half-way says nothing of why; a full disk is the usual reason.
    grade: Grade = "established" if sure else "supported" if full else "hypothesis"
    frame = culprit_frame(raised) if raised is not None and _FULL.search(message) else None
    mount = disk.mount or disk.path
    claim = f"a write{f' to {path}' if path else ''} failed for want of space"
    evidence = []
    # A disk with much room is another one than the write went to.
    if free is not None and mount and (full or free < _SOME or (path and path.startswith(mount))):
        of = f" of {size(total)}" if total else ""
        claim += f": {size(free)}{of} were free on {mount}" + ("" if full else " at the last reading")
        evidence.append(Evidence("disk", f"{mount}: {size(free)} free{of}"))
        if disk.inodes_free == 0:
            claim += " (and no inode)"
    else:
        mount = ""
    if raised is not None and _FULL.search(message):
        evidence.append(Evidence("exception", raised.root.headline, raised.when))
    elif in_output:
        evidence.append(Evidence("output", in_output.group(0)))
    where = f" on {mount}" if mount else ""
    cures = (Cure(f"make room{where}: keep only the last checkpoints, or write them to another file system"),)
    culprit = _writer(record, raised, frame) if raised is not None and frame is not None else None
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit, cures)


def _disk_of_save(record: RecordLike) -> FileSystem | None:
    for event in record.of(SaveFailed)[-1:]:
        return FileSystem(event.path, "", event.total, event.free, event.inodes_free)
    return None


def _writer(record: RecordLike, raised: Raised, frame: Frame) -> Culprit:
    """Name what the user set up to write, where a trainer called it: the line that started the training did not."""
    lines = record.source(frame.file)
    within = [name for one in (raised.root, raised) for step in one.frames for name in _CALLBACK.findall(step.file)]
    for name in reversed(within):
        made = [line for line, _ in calls_of(lines, (_CALLBACKS[name],))]
        if made:
            return culprit_at(frame.file, lines, made[0])
    return frame.culprit
