"""Who holds what a hung thread waits for: the thread itself, another one, or nobody any more.

What a line waits for, and where the script takes, gives or serves the same thing, is read from the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.frames import Frame, frames_of, innermost_first
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.input_error import errors_that_ended
from holter.diagnosis.ending.tracebacks import printed_tracebacks
from holter.diagnosis.hang.stalls import main_thread
from holter.finding import Evidence
from holter.record.events.recorder import Stacks
from holter.source.lines import tree_of

# A waiting call, the kind of thing it waits for, and the calls that would end the wait.
_CALLS = {
    "acquire": ("lock", ("release",)),
    "get": ("queue", ("put", "put_nowait", "append")),
    "put": ("full queue", ("get", "get_nowait", "popleft")),
    "wait": ("event", ("set", "notify", "notify_all", "notifyAll", "wait")),
    "wait_for": ("event", ("set", "notify", "notify_all", "notifyAll")),
    "join": ("join", ("task_done",)),
    "result": ("future", ("set_result", "set_exception")),
    "recv": ("pipe", ("send", "send_bytes")),
}
_ONE_ORDER = "take the two locks in the same order in both threads"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Thread:
    """One thread of the hung process, innermost call first."""

    name: str
    frames: tuple[Frame, ...]
    main: bool = False

    @property
    def user(self) -> tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if frame.user)


@dataclass(frozen=True)
class Holder:
    """Who holds it, as the end of a sentence; the proof; what to change; and whether it is certain."""

    words: str
    evidence: tuple[Evidence, ...]
    cure: str
    sure: bool = False
    at: Frame | None = None  # the line to look at, where it is another than the one that waits


def holder_of(record: RecordLike, pid: int | None, line: Frame | None) -> Holder | None:
    """Say who holds the lock, or who should serve the queue, that a line waits for."""
    if line is None:
        return None
    wanted = wanted_on(record.source(line.file), line.line)
    if wanted is None:
        return None
    threads = threads_of(record, pid)
    mine = next((thread for thread in threads if thread.main), None)
    others = [thread for thread in threads if not thread.main and thread.user]
    if wanted.kind == "lock":
        forked = roles(record).get(pid or 0) == "worker"
        elsewhere = _taken_elsewhere(record, wanted, line) if forked else None
        return _of_lock(record, wanted, mine, others, forked) or elsewhere or _never_released(record, wanted, line)
    if wanted.kind in ("queue", "full queue", "event"):
        return _of_served(record, wanted, line, others)
    return None


def threads_of(record: RecordLike, pid: int | None) -> list[Thread]:
    """Give all threads of a process at the last look at them; the main one is marked."""
    for event in reversed(record.of(Stacks)):
        if event.pid != pid or event.reason not in ("stall", "attach") or not event.threads:
            continue
        chosen = main_thread(event)
        found = []
        for thread in event.threads:
            frames = innermost_first(frames_of(thread.frames))
            main = thread.main is True or frames == chosen
            found.append(Thread(thread.name, tuple(frames), main))
        return found
    return []


def _of_lock(
    record: RecordLike, wanted: Wanted, mine: Thread | None, others: list[Thread], forked: bool
) -> Holder | None:
    taken = _taken_by(record, mine, wanted.name)
    if taken is not None and forked:
        words = f"; it was held since {taken.place} when the worker was made"
        cure = f"release `{wanted.name}` before the workers are made: each gets a copy of it as it is, held for ever"
        return Holder(words, (Evidence("held by", f"the trainer, since {taken.place}"),), cure, True)
    if taken is not None:
        words = f"; the same thread has held it since {taken.place}, and a Lock can't be taken twice"
        cure = f"take `{wanted.name}` once: call from outside of the `with`, or make it a threading.RLock()"
        return Holder(words, (Evidence("held by", f"the same thread, since {taken.place}"),), cure, True)
    held = _held_by(record, wanted, others)
    if held is None:
        return None
    other, taken = held
    at, name = other.user[0], other.name or "another thread"
    proof = [Evidence("held by", f"{name} since {taken.place}; it stands at {at.place}")]
    words = f"; {name} has held it since {taken.place}"
    theirs = wanted_on(record.source(at.file), at.line)
    if theirs is None or theirs.kind != "lock":
        return Holder(f"{words} and stands at {at.place}", tuple(proof), f"see why {name} does not go on", True)
    words += f" and waits at {at.place} for `{theirs.name}`"
    back = _taken_by(record, mine, theirs.name)
    if back is not None:
        words += f", which this thread holds since {back.short}"
        proof.append(Evidence("held by", f"this thread holds `{theirs.name}` since {back.place}"))
        return Holder(words, tuple(proof), _ONE_ORDER, True)
    next_one = _held_by(record, theirs, [one for one in others if one is not other])
    if next_one is None:
        return Holder(words, tuple(proof), f"see why {name} does not go on", True)
    third, since = next_one
    there = third.user[0]
    proof.append(Evidence("held by", f"{third.name} since {since.place}; it stands at {there.place}"))
    words += f", which {third.name} has held since {since.place}"
    last = wanted_on(record.source(there.file), there.line)
    if last is not None and last.kind == "lock" and _taken_by(record, other, last.name) is not None:
        # This thread only came upon two others that wait for each other.
        words += f", and {third.name} waits at {there.place} for `{last.name}`, which {name} holds"
        return Holder(words, tuple(proof), _ONE_ORDER, True, at)
    return Holder(words, tuple(proof), f"see why {third.name} does not go on", True)


def _taken_elsewhere(record: RecordLike, wanted: Wanted, line: Frame) -> Holder | None:
    """Give the other places that take a lock which a forked worker waits for: one of them had it at that moment."""
    tree = tree_of(record.source(line.file))
    if tree is None:
        return None
    here = _scope(tree, line.line)
    taking = [node for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith))]
    spots = [node.lineno for node in taking if any(_is(item.context_expr, wanted.name) for item in node.items)]
    named = [(at, getattr(_scope(tree, at), "name", "")) for at in sorted(spots) if _scope(tree, at) is not here]
    if not named:
        return None
    places = " and ".join(f"{_short(line, at)}" + (f" in {name}()" if name else "") for at, name in named[:2])
    words = f"; the trainer takes `{wanted.name}` at {places} too"
    cure = f"make the workers while nothing holds `{wanted.name}`: before a thread takes it, or when that is done"
    return Holder(words, (Evidence("also taken", places),), cure)


def _held_by(record: RecordLike, wanted: Wanted, others: list[Thread]) -> tuple[Thread, Frame] | None:
    """Give the thread that holds a lock, with the line that took it; one that waits for it itself holds it not."""
    for other in others:
        at = other.user[0]
        theirs = wanted_on(record.source(at.file), at.line)
        if theirs is not None and theirs.kind == "lock" and same_name(theirs.name, wanted.name):
            continue
        taken = _taken_by(record, other, wanted.name)
        if taken is not None:
            return other, taken
    return None


def same_name(one: str, other: str) -> bool:
    """Tell whether two expressions may be the same thing: `self.store.lock` and `lock`, but not `self.buffer.lock`."""
    plain = [re.sub(r"\[.*?\]", "", name) for name in (one, other)]  # which element it is nobody knows
    parts = [[part for part in name.split(".") if part not in ("self", "cls")][::-1] for name in plain]
    return all(mine == theirs for mine, theirs in zip(*parts, strict=False))


def _taken_by(record: RecordLike, thread: Thread | None, name: str) -> Frame | None:
    """Give the line on which a thread took a lock that it still holds."""
    for frame in thread.user if thread is not None else ():
        lines = record.source(frame.file)
        since = held_since(lines, frame.line, name)
        if since is not None:
            code = lines[since - 1].strip()[:120] if since <= len(lines) else ""
            return Frame(frame.file, since, frame.function, code, True)
    return None


def _never_released(record: RecordLike, wanted: Wanted, line: Frame) -> Holder | None:
    lines = record.source(line.file)
    taken = [at for at, _ in calls_on(lines, wanted.last, ("acquire",))]
    if wanted.call != "acquire" or calls_on(lines, wanted.last, ("release",)) or not taken:
        return None
    at = f"{_short(line, taken[0])}"
    words = f"; `{wanted.name}` is taken at {at} and nothing in the script releases it"
    return Holder(words, (Evidence("taken", f"{at}, never released"),), f"release `{wanted.name}`, best with `with`")


def _of_served(record: RecordLike, wanted: Wanted, line: Frame, others: list[Thread]) -> Holder | None:
    lines = record.source(line.file)
    serves = [spot for spot in calls_on(lines, wanted.last, wanted.served_by) if spot[0] != line.line]
    if not serves and wanted.kind != "event":
        # Handed to a function it may go by another name there.
        serves = [spot for spot in calls_on(lines, "", wanted.served_by[:2]) if spot[0] != line.line and spot[1]]
    verb = {"queue": "filled", "full queue": "emptied"}.get(wanted.kind, "set")
    if not serves:
        if wanted.kind == "event" and not any(thread.user for thread in others):
            words = f"; nothing in {line.short.partition(':')[0]} sets or notifies `{wanted.name}`"
            return Holder(words, (Evidence("serves", f"nobody: no call sets `{wanted.name}`"),), _timeout(wanted))
        return None
    at, function = serves[0]
    spot = _short(line, at)
    for other in others:
        met = next((f for f in other.user if f.file == line.file and f.name == function), None)
        if met is not None and function:
            stands = other.user[0]
            words = f"; `{wanted.name}` is {verb} by {other.name or 'a thread'}, which stands at {stands.place}"
            proof = Evidence("serves", f"{other.name} at {stands.place}")
            return Holder(words, (proof,), f"see why that thread does not go on at {stands.short}", True)
    if not function or function == line.name:
        return None
    errors = (*printed_tracebacks(record), *errors_that_ended(record))
    died = next((one for one in errors if any(f.name == function for f in one.frames)), None)
    words = f"; `{wanted.name}` is {verb} only at {spot}, in {function}(), and no thread is in it any more"
    proofs = [Evidence("serves", f"{function}() at {spot}: no thread is in it any more")]
    if died is not None:
        last = next((f for f in reversed(died.frames) if f.user), None)
        where = f" at {last.short}" if last is not None else ""
        words += f": it ended with {died.name}{where}"
        proofs.append(Evidence("it ended with", f"{died.headline[:200]}{where}"))
    return Holder(words, tuple(proofs), _timeout(wanted), True)


def _timeout(wanted: Wanted) -> str:
    if wanted.kind == "queue":
        return "let the producer always end with a mark (put(None) in a `finally`), and give get() a timeout"
    if wanted.kind == "full queue":
        return "let the consumer take until it is told to stop, and give put() a timeout"
    return f"see who should set `{wanted.name}`; give the wait a timeout"


def _short(line: Frame, at: int) -> str:
    return f"{line.short.rpartition(':')[0]}:{at}"


@dataclass(frozen=True)
class Wanted:
    """What a line waits for: its kind, its name as written, and the calls that would let it go on."""

    kind: str
    name: str
    call: str = ""
    served_by: tuple[str, ...] = ()

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


def wanted_on(lines: Sequence[str], line: int) -> Wanted | None:
    """Read from a line what it waits for: `with lock:`, `q.get()`, `ready.wait()`, `thread.join()`."""
    tree = tree_of(lines)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.context_expr.lineno == line and isinstance(item.context_expr, (ast.Name, ast.Attribute)):
                    return Wanted("lock", ast.unparse(item.context_expr), "with", ("release",))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CALLS
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    for node in sorted(found, key=lambda node: (node.end_lineno or 0) - node.lineno):
        assert isinstance(node.func, ast.Attribute)
        if isinstance(node.func.value, (ast.Name, ast.Attribute, ast.Subscript)):
            kind, served_by = _CALLS[node.func.attr]
            return Wanted(kind, ast.unparse(node.func.value), node.func.attr, served_by)
    return None


def held_since(lines: Sequence[str], line: int, name: str) -> int | None:
    """Give the line that took a lock which is still held where a line stands."""
    tree = tree_of(lines)
    if tree is None or not name:
        return None
    scope = _scope(tree, line)
    taken: int | None = None
    for node in _within(scope):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            taking = any(_is(item.context_expr, name) for item in node.items)
            inside = (
                node.body[0].lineno <= line <= (node.end_lineno or line) or node.lineno < line <= node.body[0].lineno
            )
            if taking and inside and node.lineno != line:
                taken = max(taken or 0, node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.lineno < line:
            if node.func.attr == "acquire" and _is(node.func.value, name):
                taken = max(taken or 0, node.lineno)
            elif node.func.attr == "release" and _is(node.func.value, name) and taken and node.lineno > taken:
                taken = None
    return taken


def calls_on(lines: Sequence[str], name: str, calls: Iterable[str]) -> list[tuple[int, str]]:
    """Give the lines that call one of these methods on a thing, with the function they stand in; any thing for ''."""
    tree, wanted = tree_of(lines), frozenset(calls)
    last = name.rpartition(".")[2]
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in wanted:
            continue
        if not last or _last(node.func.value) == last:
            scope = _scope(tree, node.lineno)
            found.append((node.lineno, getattr(scope, "name", "")))
    return sorted(found)


def _is(node: ast.AST, name: str) -> bool:
    return bool(_last(node)) and same_name(ast.unparse(node), name)


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _scope(tree: ast.Module, line: int) -> ast.AST:
    """Give the innermost function that a line stands in, else the file."""
    best: ast.AST = tree
    for node in ast.walk(tree):
        around = isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if around and (best is tree or getattr(node, "lineno", 0) >= getattr(best, "lineno", 0)):
            best = node
    return best


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """Walk a function's own statements in the order they stand, leaving out those of functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        yield node
        yield from _within(node)
