"""Tracebacks and warnings that went by in the command's output, parsed back into exceptions, frames and evidence."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame, is_user_file, short_path
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Evidence

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What launchers write before each line of a rank's output, and the bars of an exception group.
_PREFIX = re.compile(r"^(?:\[(?:rank|default)\d+\]:\s?|\d+: (?=Traceback|  )|\s+[|+](?:-+)? ?(?=\s|Trace|Exc|\w))")
_HEAD = re.compile(r"^\s*(?:Original |Exception Group )?Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:, in (?P<function>.+?))?\s*$')
_LAST = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_MARKS = re.compile(r"^[\s~^]*$|^\s+\[Previous line repeated")
_CHAINED = ("The above exception was the direct cause of", "During handling of the above exception")
# As Python itself prints a warning: what a traceback ends with has no file, what a compiler prints no class.
_WARNING = re.compile(
    r"^(?P<file>[/<.][^:\n]{0,400}|[^\s:]{1,400}\.py):(?P<line>\d{1,9}): (?P<kind>(?:\w+\.)*[A-Z]\w*Warning): "
    r"(?P<said>\S[^\n]{0,200})",
    re.MULTILINE,
)
_ABOUT_LATER = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")  # releases to come, not this run
_MOST_WARNINGS = 3
# A traceback of thousands of lines (deep recursion) is not worth more time than this many.
_MOST_LINES = 20000
_LONGEST_HEADLINE = 160


@dataclass(frozen=True)
class Raised:
    """One exception: its type, message and stack, outermost call first, and the one it came from."""

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    cause: Raised | None = None
    pid: int | None = None
    when: float | None = None

    @property
    def root(self) -> Raised:
        """Give the exception that the chain began with."""
        found = self
        for _ in range(50):
            if found.cause is None:
                break
            found = found.cause
        return found

    @property
    def name(self) -> str:
        """Give the type without its module, as people say it."""
        return self.type.rpartition(".")[2] or self.type

    @property
    def headline(self) -> str:
        """Give type and the first line of the message, cut to what fits a sentence."""
        first = next((line.strip() for line in plain(self.message).splitlines() if line.strip()), "")
        cut = first if len(first) <= _LONGEST_HEADLINE else first[: _LONGEST_HEADLINE - 1] + "…"
        return f"{self.name}: {cut}" if cut else self.name


@dataclass
class _Open:
    frames: list[Frame] = field(default_factory=list)
    chained: bool = False
    nested: bool = False


def plain(output: str) -> str:
    """Take the colour codes out of an output."""
    return _ESCAPES.sub("", output)


@once
def printed_text(record: RecordLike) -> str:
    """Give a record's output without its colour codes."""
    return plain(record.output)


@once
def printed_tracebacks(record: RecordLike) -> list[Raised]:
    """Give all tracebacks of a record's output in order."""
    return parse_tracebacks(record.output)


def last_line_with(pattern: re.Pattern[str], text: str) -> str:
    """Give the last line that a pattern is found on, at most 300 characters around it."""
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    if found is None:
        return ""
    # A progress bar writes one line of megabytes, parted by carriage returns only.
    begin = max(text.rfind(mark, 0, found.start()) for mark in "\n\r") + 1
    ends = [at for mark in "\n\r" if (at := text.find(mark, found.end())) >= 0]
    line = text[max(begin, found.start() - 150) : min([*ends, found.end() + 150])]
    return line.strip()


def warnings_printed(record: RecordLike) -> tuple[Evidence, ...]:
    """Give the last warnings that Python printed, each once."""
    times: Counter[str] = Counter()
    for match in _WARNING.finditer(printed_text(record).replace("\r", "\n")):
        if match["kind"].rpartition(".")[2] not in _ABOUT_LATER:
            text = f"{short_path(match['file'])}:{match['line']}: {match['kind']}: {match['said'].rstrip()}"
            times[text] = times.pop(text, 0) + 1  # to the end: the last ones count
    last = list(times.items())[-_MOST_WARNINGS:]
    return tuple(Evidence("warning", text + (f" ({n} times)" if n > 1 else "")) for text, n in last)


def parse_tracebacks(output: str) -> list[Raised]:
    """Read all tracebacks of an output in order; those of one chain come as one, the last of it."""
    found: list[Raised] = []
    current: _Open | None = None
    chained = False
    for raw in plain(output).splitlines()[-_MOST_LINES:]:
        line = _PREFIX.sub("", raw)
        if _HEAD.match(line):
            # A worker's traceback stands inside the message of the exception that the trainer raised.
            nested = line.lstrip().startswith("Original")
            current = _Open(chained=chained or nested, nested=nested)
            chained = False
        elif line.startswith(_CHAINED):
            chained = True
        elif current is not None:
            current = _continue(current, line, found)
    return found


def _continue(current: _Open, line: str, found: list[Raised]) -> _Open | None:
    match = _FRAME.match(line)
    if match:
        file = match["file"]
        current.frames.append(Frame(file, int(match["line"]), match["function"] or "", "", is_user_file(file)))
        return current
    if _MARKS.match(line):
        return current if line.strip() or not current.frames else None
    if line.startswith((" ", "\t")):
        if current.frames and not current.frames[-1].code:
            current.frames[-1] = replace(current.frames[-1], code=line.strip())
        return current
    last = _LAST.match(line)
    if last is None or not current.frames:
        return None
    raised = Raised(last["type"], last["message"] or "", tuple(current.frames))
    _add(raised, current, found)
    return None


def _add(raised: Raised, current: _Open, found: list[Raised]) -> None:
    if not (current.chained and found):
        found.append(raised)
    elif current.nested:
        # "Caught X in DataLoader worker": the original is the cause, the trainer's the one that ended it.
        found[-1] = replace(found[-1], cause=raised)
    else:
        found[-1] = replace(raised, cause=found[-1])


def as_traceback(message: str) -> str:
    """Turn what TensorFlow says of an error in a traced function ("in user code: ...") into Python's own form."""
    lines = ["Traceback (most recent call last):"]
    for line in message.splitlines()[1:]:
        bare = line.strip()
        if bare.startswith('File "'):
            lines.append("  " + re.sub(r"\s+\*+$", "", bare))
        elif bare:
            lines.append("    " + bare if line.startswith(" " * 8) else bare)
    return "\n".join(lines) + "\n"
