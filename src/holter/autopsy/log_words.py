"""What a log tells by itself: how far the training came, whether its loss went wrong, and the words it ended with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from holter.diagnosis.ending.exits import CRASHES

# How frameworks, progress bars and people print how far they are. A step or an epoch by its number, and of how many.
_AT = r"\b['\"]?[\s:=#\[('\"]{0,4}"
_OF = r"(?:\s{0,2}(?:/|of)\s{0,2}(?P<of>\d{1,9}))?"
_EPOCH = re.compile(rf"\b(?:epoch|ep){_AT}(?P<n>\d{{1,7}}(?:\.\d{{1,6}})?){_OF}", re.IGNORECASE)
_STEP = re.compile(
    rf"\b(?:step|iter|iteration|batch|update|round|fold|trial|it){_AT}(?P<n>\d{{1,9}}){_OF}", re.IGNORECASE
)
_BAR = re.compile(
    r"\b\d{1,3}%\s?\|[^|\n]{0,200}\| ?(?P<n>\d{1,9})/(?P<of>\d{1,9})\b|"
    r"^ ?(?P<k>\d{1,7})/(?P<kof>\d{1,7}) [━╸ =>.\-\[]"
)
# A loss and what belongs to it, with its value: `loss: nan`, `'loss': '6.04'`, `loss=1e9`, `grad_norm inf`.
_LOSS = re.compile(
    r"(?P<name>loss|grad_norm|perplexity|ppl|mse|mae|nll|elbo)\b['\"]?[\s:=('\"]{1,6}(?:tensor\()?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d{1,12}(?:\.\d{0,20})?(?:e[-+]?\d{1,4})?))\b",
    re.IGNORECASE,
)
# A line of progress that ends in a value with no name: `epoch 3 batch 50: nan`.
_UNNAMED = re.compile(
    r"^[^\n]{0,80}\b(?P<name>epoch|step|iter|iteration|batch)\b[^\n:=]{0,40}[:=]\s?"
    r"(?P<value>[-+]?(?:nan|inf|\d{1,12}(?:\.\d{0,20})?(?:e[-+]?\d{1,4})?))[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_WORD = re.compile(r"[\w./]{0,40}$")
_NO_NUMBER = re.compile(r"nan|inf", re.IGNORECASE)
_SAYS_NAN = re.compile(
    r"\b(?:loss|gradients?|grad|weights?|outputs?|activations?)\b[^\n]{0,40}\b(?:nan|inf|infinite|non-?finite)\b|"
    r"\b(?:nan|non-?finite)\b[^\n]{0,30}\b(?:loss|gradients?)\b|Invalid loss, terminating",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:training|run|job|fit|all)\s(?:is\s)?(?:complete|completed|finished|done|over)\b|"
    r"\b(?:finished|done) training\b|^(?:done|finished|completed?|saved?\b.{0,80}|best\b.{0,80})[.!]?$|"
    r"^test (?:accuracy|loss|score).{0,60}$|`?Trainer\.fit`? stopped|train_runtime",
    re.IGNORECASE | re.MULTILINE,
)


def _ended(words: str, *codes: int) -> re.Pattern[str]:
    """A shell's own word for a signal, alone at the beginning of a line; or an exit code as containers tell it."""
    told = "|".join([rf"^(?:\S+: )?(?:line \d+:\s+)?(?:\d{{1,8}} )?(?:{words})\b", *(
        rf"[Ee]xit(?:ed with)? (?:code|status):? {code}\b" for code in codes)])  # fmt: skip
    return re.compile(told, re.MULTILINE)


# What shells, launchers, containers and C libraries write where a process was ended by a signal.
_SIGNAL_WORDS = (
    ("SIGKILL", _ended(r"Killed|.{0,80}OOMKilled|.{0,80}oom[-_]kill event", 137)),
    ("SIGSEGV", _ended("Segmentation fault|Fatal Python error: Segmentation fault", 139)),
    ("SIGBUS", _ended("Bus error|Fatal Python error: Bus error")),
    ("SIGABRT", _ended("Aborted|Fatal Python error: Aborted|terminate called after throwing", 134)),
    ("SIGILL", _ended("Illegal instruction|Fatal Python error: Illegal instruction")),
    ("SIGFPE", _ended("Floating point exception|Fatal Python error: Floating[- ]point exception")),
    ("SIGHUP", _ended("Hangup")),
    ("SIGXCPU", _ended("CPU time limit exceeded|Cputime limit exceeded")),
    ("SIGTERM", _ended("Terminated|.{0,200}SignalException: Process \\d+ got signal: 15", 143)),
)
_DIGIT = re.compile(r"\d")
_PROGRESS_LETTERS = 200_000  # of the end, where the last step is
_LAST_LETTERS = 8000  # of the log: what comes before them is no last word
_FINAL_LETTERS = 400
_PIDS = re.compile(
    r"\(pid[:= ]{1,2}(\d{1,8})|\bpid[:= ]{1,3}(\d{1,8})\b|^[IWEF]\d{4} [\d:.]{8,30}\s+(\d{1,8}) |"
    r"line \d+:\s+(\d{1,8}) (?:Killed|Terminated|Aborted|Segmentation)",
    re.MULTILINE | re.IGNORECASE,
)
_HEAD_OF_TRACEBACK = "Traceback (most recent call last)"
_IN_A_THREAD = re.compile(r"^Exception in thread (.{1,100}):\s*$", re.MULTILINE)


@dataclass(frozen=True)
class LogProgress:
    """How far it came, by the last numbers that were printed."""

    epoch: float | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    lines: int = 0  # that tell of it
    begun: bool = False  # the last of them only says that the epoch begins

    @property
    def words(self) -> str:
        """`epoch 3 of 40, step 120 of 500`; empty where nothing tells."""
        said = []
        if self.epoch is not None:
            said.append(f"epoch {self.epoch:,g}" + (f" of {self.epochs:,}" if self.epochs else ""))
        if self.step is not None:
            said.append(f"step {self.step:,}" + (f" of {self.steps:,}" if self.steps else ""))
        return ", ".join(said)

    @property
    def far(self) -> bool:
        """Tell whether enough was done for each step to have fitted once."""
        return self.lines >= 4 or (self.epoch or 0) >= 3 or (self.step or 0) >= 20

    @property
    def reached_its_plan(self) -> bool:
        """Tell whether the last of the epochs, or of the steps where no epochs are told, was done."""
        if self.epochs and self.epoch is not None:
            return self.epoch >= self.epochs and not self.begun
        return bool(self.steps and self.step is not None and self.step >= 0.98 * self.steps)

    @property
    def fell_short(self) -> bool:
        """Tell whether a plan was printed and not reached."""
        return bool(self.epochs or self.steps) and not self.reached_its_plan


@dataclass(frozen=True)
class LossGone:
    """A loss whose last value is no number: the first such line, and the value before."""

    name: str
    value: str
    line: str
    before: str = ""


@lru_cache(maxsize=4)
def progress_in(text: str) -> LogProgress:
    """Read the last epoch and the last step."""
    epoch = epochs = step = steps = None
    lines, begun = 0, False
    for line in text[-_PROGRESS_LETTERS:].split("\n"):
        if not _DIGIT.search(line):
            continue
        at, bar = _EPOCH.search(line), _BAR.search(line)
        found = _STEP.search(line) or bar
        if at is not None:
            epoch, epochs = float(at["n"]), int(at["of"]) if at["of"] else epochs
        if found is bar and bar is not None:
            step, steps = int(bar["n"] or bar["k"]), int(bar["of"] or bar["kof"])
        elif found is not None:
            step, steps = int(found["n"]), int(found["of"]) if found["of"] else None
        if at is not None or found is not None or _LOSS.search(line) is not None:
            lines += 1
            begun = at is not None and not line[at.end() :].strip(" .:|-=")
    return LogProgress(epoch, epochs, step, steps, lines, begun)


def loss_gone(text: str) -> LossGone | None:
    """The first loss that became NaN or Inf and stayed so to the end: one that came back was looked after."""
    gone: dict[str, LossGone] = {}
    last: dict[str, str] = {}
    for found in (*_LOSS.finditer(text), *_UNNAMED.finditer(text)) if _NO_NUMBER.search(text) else ():
        value, at = found["value"], found.start("name")
        before = _WORD.search(text, max(0, at - 40), at)
        name = ((before[0] if before is not None else "") + found["name"]).lower()
        name = f"the value of each {name}" if found.re is _UNNAMED else name
        if not _NO_NUMBER.search(value):
            last[name] = value
            gone.pop(name, None)
        elif name not in gone:
            begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", found.end())
            line = text[begin : end if end >= 0 else len(text)]
            gone[name] = LossGone(name, value, line.strip()[:200], last.get(name, ""))
    # The loss itself before what was made of it, and what is trained on before what is only validated.
    order = sorted(gone.values(), key=lambda one: (one.name.rpartition("/")[2] != "loss", "val" in one.name))
    return order[0] if order else None


def says_nan(message: str) -> bool:
    """Tell whether an error of the script's own says that a loss or a gradient is no number."""
    return bool(_SAYS_NAN.search(message))


def signal_words(text: str) -> tuple[str, str] | None:
    """The signal that ended it, and the line that says so; of the last words only."""
    late = text[-_LAST_LETTERS:]
    best: tuple[int, str, str] | None = None
    for name, pattern in _SIGNAL_WORDS:
        for found in pattern.finditer(late):
            # Of a crash the first word is the cause; a bare `Killed` counts only as the end of it all.
            begin, end = late.rfind("\n", 0, found.start()) + 1, late.find("\n", found.end())
            line = late[begin : end if end >= 0 else len(late)].strip()[:200]
            near_the_end = len(late.rstrip()) - found.end() < (6000 if name in CRASHES else 1500)
            if near_the_end and (best is None or found.start() < best[0]):
                best = found.start(), name, line
    return best[1:] if best is not None else None


def ends_in_traceback(text: str) -> bool:
    """Tell whether the last traceback is the end of the log: no progress was printed after it."""
    at = text.rfind(_HEAD_OF_TRACEBACK)
    return at >= 0 and progress_in(text[at:][-200_000:]).lines <= 2


def thread_that_died(text: str) -> str:
    """The thread whose traceback is the last of the log; empty where it is that of the program."""
    at = text.rfind(_HEAD_OF_TRACEBACK)
    found = _IN_A_THREAD.search(text, max(0, at - 120), at) if at >= 0 else None
    return found[1] if found is not None else ""


def says_done(text: str) -> str:
    """The line near the end with which a script says that it is done; empty without one."""
    last = "\n".join(text.rstrip()[-_FINAL_LETTERS:].split("\n")[-4:])
    found = _DONE.search(last)
    return found.group(0).strip() if found else ""


def pids_in(text: str) -> set[int]:
    """Process numbers that launchers, shells and libraries wrote into the log."""
    return {int(next(filter(None, found.groups()))) for found in _PIDS.finditer(text)}
