"""What a hung run waits in, one rule for each kind of wait."""

from __future__ import annotations

from holter.diagnosis.core.evidence import on_macos
from holter.diagnosis.core.rule import RecordLike, Rule
from holter.diagnosis.hang.blocking import blocked_in
from holter.diagnosis.memory.unified import pressure_evidence
from holter.facts.lock_lines import takes_a_lock
from holter.finding import Cure, Ending, Finding


def deadlock(record: RecordLike, ending: Ending) -> Finding | None:
    """Threads or processes that wait for each other.

    What it sees: a hung run whose main thread stands in a lock, a queue, a join or a wait, while the tree uses no CPU.
    Why it matters: nothing will ever move again; every hour of waiting is lost.
    May be confused with: a wait for data, a device, another rank or a disk: each of those is told as itself.
    How sure: established when the frames were the same twice and the CPU idle; a hypothesis where only the line is
    known.
    Cure: the lock or queue on that line: a timeout, one order of locks, a reader for the queue.
    """
    found = blocked_in(record, ending)
    if found is None or found.detail != "deadlock":
        return None
    cure = found.cure or "give the wait a timeout: it then raises where it waits"
    if found.others and not all(takes_a_lock(code) for code in (found.line_code, found.others[0][1].code)):
        cure = f"see why that thread does not go on at {found.others[0][1].short}"
    elif found.others:
        cure = "take the locks in one order in all threads; a timeout on the wait shows it as an error"
    cures = (Cure(cure),)
    return Finding("hang.deadlock", found.grade, found.claim, found.evidence, found.culprit, cures, rank=found.number)


def device(record: RecordLike, ending: Ending) -> Finding | None:
    """A device whose queue does not come back.

    What it sees: a hung run that waits in a synchronise, in a Metal command buffer, or in reading a result back
    (.item(), .cpu()).
    Why it matters: the call that waits is not the one that failed: the kernel before it, or the device itself, is.
    May be confused with: one very long kernel, with the device busy; a collective, which waits in the device as well.
    How sure: established when the frames are a synchronise and nothing moves; a hypothesis from the code on the line.
    Cure: run with CUDA_LAUNCH_BLOCKING=1 to see the kernel; check the driver's log; on Metal, leave it more memory.
    """
    found = blocked_in(record, ending)
    if found is None or found.detail != "device":
        return None
    if on_macos(record):
        metal = Cure(
            "torch.mps.synchronize() after each part of the step, for one run: the one that waits is the cause"
        )
        smaller_batch = Cure("a smaller batch: Metal waits for memory that the system can't give", "", "equivalent")
        evidence = (*found.evidence, *pressure_evidence(record))
        return Finding(
            "hang.device", found.grade, found.claim, evidence, found.culprit, (metal, smaller_batch), rank=found.number
        )
    cures = (
        Cure("run once with CUDA_LAUNCH_BLOCKING=1: the line that then waits is the cause"),
        Cure("see the driver's log (dmesg, nvidia-smi -q) for Xid errors"),
    )
    return Finding("hang.device", found.grade, found.claim, found.evidence, found.culprit, cures, rank=found.number)


def io(record: RecordLike, ending: Ending) -> Finding | None:
    """A read or write that does not come back.

    What it sees: a hung run in uninterruptible sleep (state D), or blocked in a file, a pipe or a socket.
    Why it matters: a network mount or a server that is gone stops the training without an error.
    May be confused with: slow storage, where bytes still move; a wait for another process of the run.
    How sure: established by the state or the frames; a hypothesis where only the code on the line says so.
    Cure: the path or the server; a timeout on the request.
    """
    found = blocked_in(record, ending)
    if found is None or found.detail != "io":
        return None
    cures = (Cure("check the file, mount or server on that line; give the call a timeout"),)
    return Finding("hang.io", found.grade, found.claim, found.evidence, found.culprit, cures, rank=found.number)


def poll(record: RecordLike, ending: Ending) -> Finding | None:
    """A loop that looks again and again for something that does not come, asleep in between or not.

    What it sees: a hung run whose main thread is in a sleep at both looks, on the same line, with no CPU used; or a run
    that somebody ended, whose main thread was in one `while` at every look, busy, for 50 times its longest step.
    Why it matters: what it looks for (a file, a port, a flag, enough samples) is not coming, and nothing says so.
    May be confused with: a pause that is meant, as for a rate limit, or one long computation: both end.
    How sure: supported: the loop is seen; that it would never end is known only from how long it took before.
    Cure: the condition of that loop; a limit of tries.
    """
    found = blocked_in(record, ending)
    if found is None or found.detail != "poll":
        return None
    cures = (Cure("see what that loop waits for; let it give up with an error after some tries"),)
    return Finding("hang.poll", found.grade, found.claim, found.evidence, found.culprit, cures, rank=found.number)


def worker(record: RecordLike, ending: Ending) -> Finding | None:
    """A data worker that died or is stuck.

    What it sees: a hung run whose trainer waits in its DataLoader, and what its workers stand in, or that one is gone.
    Why it matters: the trainer's own stack shows only the loader; the cause is a line of the dataset, in another
    process.
    May be confused with: a slow worker, which makes steps rare but still makes them; a deadlock in the trainer itself.
    How sure: established when the worker's own line was read and nothing moved; a hypothesis when the workers could not
    be read.
    Cure: the worker's line; the spawn start method where a fork copied a held lock.
    """
    found = blocked_in(record, ending)
    if found is None or found.detail != "worker":
        return None
    stuck = found.worker
    culprit = (stuck.user_frames or stuck.frames)[0].culprit if stuck is not None else found.culprit
    if stuck is not None:
        limit = "; DataLoader(timeout=60) turns such a wait into an error" if len(stuck.frames) > 1 else ""
        cure = Cure(f"see why it does not go on from that line{limit}")
    else:
        cure = Cure("num_workers=0 for one run: what a worker hides then shows itself")
    return Finding("hang.worker", found.grade, found.claim, found.evidence, culprit, (cure,), rank=found.number)


RULES = (
    Rule.of("hang.deadlock", deadlock),
    Rule.of("hang.device", device),
    Rule.of("hang.io", io),
    Rule.of("hang.poll", poll),
    Rule.of("hang.worker", worker),
)
