"""Hostile records: real ones, changed in every way that a seed can think of, and read by every command that reads.

    python bench/fuzz_records.py [SECONDS] [--seed N] [--case N] [--keep FOLDER]

Each record is read in processes of its own by `why`, `why --json`, `ls`, `report`, and the desk of `serve` and `watch`.
A process fails when it ends with a traceback, when a rule stumbles, when it takes more than 300 MB or a minute, when
it opens any file for writing but the report, starts a process or a connection, or when what it prints could move a
cursor or run a script. Prints a table, and the number of each case that failed: --case makes it anew.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MOST_MB = 300
MOST_SECONDS = 60
RUN = "r-0002"
SCRIPT = """
import time
import holter
token = "made of words"
for batch in holter.track(range(40), total=200):
    time.sleep(0.03)
    holter.step(loss=1.0 / (batch + 1), batch=4)
raise RuntimeError("the data ended early")
"""
# Written so by anyone who would like to be let in.
TEXTS = [
    "", "x" * 100_000, "../../outside", "/etc/passwd", "~", "a\nb\r\nc\tv", "\x00", "\ud800", "%s %n {0} {x!r}",
    "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\u202e\u2066abc", "<script>alert(1)</script>", "javascript:alert(1)",
    '"><img src=x onerror=alert(1)>', "</script><script>alert(1)</script>", "[x](javascript:alert(1))",
    "`|`||\n# title", "\U0001f600", "nan", "-1", "1e999", "Killed", "CUDA out of memory", "No space left on device",
    "Traceback (most recent call last):\n" * 9,
]  # fmt: skip
NUMBERS: list[Any] = [
    0, -1, 1, -0.0, 1e-300, 1e17, -1e17, 10**18, -(10**18), 2**53 + 1, 2**63, 2**64, 10**400, 1e308, -1e308,
    float("nan"), float("inf"), -float("inf"), 1e9, 1e12, True, False,
]  # fmt: skip
OTHERS: list[Any] = [None, [], {}, [[]], {"": {}}, [None, 1, "a", []], {"k": "sample"}, [{}] * 300, "[]"]


def strange(chance: random.Random) -> Any:
    """A value that nobody expects."""
    if chance.random() < 0.03:
        deep: Any = chance.choice([[], {}, 1])
        for _ in range(chance.choice([30, 400, 900])):
            deep = [deep] if chance.random() < 0.5 else {"a": deep}
        return deep
    return chance.choice(chance.choice([TEXTS, NUMBERS, OTHERS]))


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    deeper = inner if len(way) < 12 else []
    return [way, *(place for key, item in deeper for place in places(item, (*way, key)))]


def put(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    if not way:
        return new
    inner = value
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = new
    return value


# -- what is done to a record -----------------------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def flip_bytes(folder: Path, chance: random.Random) -> None:
    path = chance.choice(files_of(folder))
    raw = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 3, 50]) if raw else 0):
        raw[chance.randrange(chance.choice([len(raw), min(len(raw), 400)]))] = chance.randrange(256)
    path.write_bytes(raw)


def cut_off(folder: Path, chance: random.Random) -> None:
    path = chance.choice(files_of(folder))
    raw = path.read_bytes()
    path.write_bytes(raw[: chance.randrange(len(raw) + 1)])


def change_values(folder: Path, chance: random.Random) -> None:
    """At one place of the facts, or at some of one file's lines: another type, number or text."""
    if chance.random() < 0.2:
        if folder / "record.json" not in files_of(folder):
            return  # an earlier act made a link to /dev/zero or a FIFO of it, which is for the readers to meet
        try:
            facts = json.loads((folder / "record.json").read_bytes())
        except (OSError, ValueError):
            return
        new = put(facts, chance.choice(places(facts)), strange(chance))
        if isinstance(new, dict) and chance.random() < 0.8:
            new["schema"] = 1
        (folder / "record.json").write_bytes(dumped(new))
        return
    found = [path for path in files_of(folder) if path.suffix == ".jsonl"]
    if not found:
        return
    path = chance.choice(found)
    lines = path.read_bytes().splitlines()
    often = chance.choice([0.02, 0.3, 1.0])
    same = strange(chance) if chance.random() < 0.3 else None
    for at, line in enumerate(lines):
        if chance.random() < often:
            try:
                value = json.loads(line)
                way = chance.choice(places(value))
                if len(way) == 1 and way[0] in ("k", "t", "m") and chance.random() < 0.7:
                    continue
                lines[at] = dumped(put(value, way, strange(chance) if same is None else same))
            except ValueError:
                continue
    path.write_bytes(b"\n".join(lines) + b"\n")


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def repeat_lines(folder: Path, chance: random.Random) -> None:
    found = [path for path in files_of(folder) if path.suffix == ".jsonl"]
    if found:
        path = chance.choice(found)
        lines = path.read_bytes().splitlines(keepends=True)
        chance.shuffle(lines)
        path.write_bytes(b"".join(lines[: chance.choice([1, 5, 100])] * chance.choice([2, 20, 300])))


def strange_files(folder: Path, chance: random.Random) -> None:
    path = chance.choice([path for path in folder.rglob("*") if path.exists()])
    what = chance.choice(["gone", "fifo", "link", "zero", "folder", "twice", "empty", "circle"])
    if what == "twice" and path.is_file():
        shutil.copy(path, path.with_name(path.name + chance.choice([".gz", ".1", ""]) + chance.choice([".jsonl", ""])))
        return
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what in ("link", "zero", "circle"):
        path.symlink_to({"link": "/etc/passwd", "zero": "/dev/zero", "circle": str(path)}[what])
    elif what == "folder":
        path.mkdir()
    elif what == "empty":
        path.write_bytes(b"")


def swell(folder: Path, chance: random.Random) -> None:
    """A packed segment that unpacks to megabytes."""
    lines = [
        b"\n",
        b'{"k":"sample","t":1,"m":1}\n',
        b'{"k":"steps","t":2,"m":2,"pid":1,"n":1,"first":1,"last":9,"sum":1,"loss":{"last":1,"min":1,"max":1}}\n',
        b'{"k":"sample","t":1,"m":1,"x":[' + b"{}," * 50_000 + b"1]}\n",
        b'{"k":"sample","t":1,"m":1,"processes":{"list":[' + b'{"pid":1,"rss":2},' * 9000 + b"{}]}}\n",
        b'{"k":"stacks","t":1,"m":1,"threads":[{"frames":['
        + b'{"file":"/a.py","line":3,"user":true},' * 9000
        + b"{}]}]}\n",
    ]
    line = chance.choice(lines)
    (folder / "timeline").mkdir(exist_ok=True)
    for number in range(chance.choice([1, 4])):
        packed = gzip.compress(line * ((chance.choice([1, 8]) << 20) // len(line) + 1), 1)
        (folder / "timeline" / f"{chance.choice([0, 900000]) + number:06d}.jsonl.gz").write_bytes(packed)


def lose_the_end(folder: Path, chance: random.Random) -> None:  # noqa: ARG001 - all of them are called alike
    path = folder / "events.jsonl"
    if path.is_file():
        path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if b'"k":"end"' not in line))


ACTS: dict[Callable[[Path, random.Random], None], int] = {
    change_values: 60, flip_bytes: 20, cut_off: 10, strange_files: 10, repeat_lines: 4, swell: 1, lose_the_end: 10,
}  # fmt: skip


def changed(folder: Path, chance: random.Random) -> list[str]:
    """Change a record; gives the names of what was done."""
    done = []
    for _ in range(chance.choice([1, 1, 2, 4, 12])):
        act = chance.choices(list(ACTS), list(ACTS.values()))[0]
        try:
            act(folder, chance)
        except (OSError, IndexError, RecursionError):  # of what an earlier act has made of it
            continue
        done.append(act.__name__)
    return done


def changed_apart(folder: Path, chance: random.Random, note: Path) -> list[str]:
    """In a process of its own: the memory that making the record takes would be counted as its readers'."""
    pid = os.fork()
    if pid == 0:
        try:
            note.write_text(" ".join(changed(folder, chance)))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return note.read_text().split()


# -- who reads it -----------------------------------------------------------------------------------------------------


def command(*words: str) -> Callable[[Path], None]:
    def read(_folder: Path) -> None:
        from holter.commands import main

        main(list(words))

    return read


def desk(folder: Path) -> None:
    """All that the page of `serve` and the screen of `watch` ask for, and what /metrics says."""
    from holter.commands._runs import Runs
    from holter.figures.record_worker import RecordWorker
    from holter.views.web.metrics import metrics_text

    answers = RecordWorker()
    for do in ("row", "run", "words", "charts", "run"):
        found = answers.answer({"do": do, "folder": str(folder), "columns": 300, "begin": 1.0, "end": 5.0})
        text = json.dumps(found, default=str).encode("utf-8", "replace").decode()
        if "could not be shown" in str(found.get("error")):
            raise AssertionError(found["error"])
        json.loads(text)
    runs = Runs()
    rows = [runs.quick_row(run) for run in runs.ids()]
    json.dumps(rows)
    metrics_text(rows, {run: runs.gauges(run) for run in runs.ids()}, runs.meanings()).encode()


def rules(folder: Path) -> None:
    """Whether any rule stumbles: it costs its own word alone, but it met what it should not have met."""
    from holter.diagnosis.core.doctor import verdict
    from holter.errors import DamagedRecord
    from holter.record.reader import open_record

    try:
        failed = verdict(open_record(folder)).failed_rules
    except DamagedRecord:
        return
    if failed:
        raise AssertionError(f"rules stumbled: {failed}")


READERS: dict[str, Callable[[Path], None]] = {
    "why --json": command("why", "--json", RUN),
    "why": command("why", RUN),
    "ls": command("ls"),
    "report html": command("report", RUN, "-o", "report.html"),
    "report md": command("report", RUN, "-o", "report.md"),
    "serve's desk": desk,
    "rules": rules,
}
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Outcome:
    """How one process read one record."""

    wrong: str = ""
    mb: float = 0.0
    seconds: float = 0.0


def guarded(act: Callable[[Path], None], folder: Path, work: Path) -> None:
    """In the child: read, and note whatever reaches for the world outside."""
    os.chdir(work)
    allowed = {str(work / "report.html"), str(work / "report.md"), "report.html", "report.md", os.devnull}

    def watch(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes and str(args[0]) not in allowed and not isinstance(args[0], int)) or event in (
            "subprocess.Popen", "os.exec", "os.system", "os.fork", "socket.connect", "os.rename", "os.remove",
            "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.kill" if args and args[-1] else "-",
        ):  # fmt: skip
            os.write(2, f"OUTSIDE: {event} {args!r:.200}\n".encode("utf-8", "replace"))

    sys.dont_write_bytecode = True
    sys.addaudithook(watch)
    act(folder)


def read_by(name: str, folder: Path, work: Path) -> Outcome:
    """One reader in a process of its own."""
    outputs = [work / "stdout", work / "stderr"]
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for number, path in enumerate(outputs, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
            sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "replace", line_buffering=True)  # noqa: SIM115
            sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "replace", line_buffering=True)  # noqa: SIM115
            guarded(READERS[name], folder, work)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1 if error.code else 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _pid, status, used = os.wait4(pid, 0)
    outcome = Outcome(mb=used.ru_maxrss / 1024, seconds=used.ru_utime + used.ru_stime)
    out, err = (path.read_text("utf-8", "replace") for path in outputs)
    code = os.waitstatus_to_exitcode(status)
    outcome.wrong = wrong_with(code, out, err, outcome, work)
    return outcome


def wrong_with(code: int, out: str, err: str, outcome: Outcome, work: Path) -> str:
    last = (err.strip().splitlines() or [""])[-1][:300]
    if "Traceback (most recent call last)" in err or "Holter could not judge it" in out:
        at = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', err)
        where = f"{Path(at[-1][0]).name}:{at[-1][1]} {at[-1][2]}" if at else ""
        return f"traceback: {where}: {last or out[:300]}"
    if code == -signal.SIGXCPU or code == -signal.SIGKILL:
        return f"more than {MOST_SECONDS} s"
    if code not in (0, 4):
        return f"exit code {code}: {last}"
    if "OUTSIDE" in err:
        return re.findall("OUTSIDE.*", err)[0]
    if outcome.mb > MOST_MB:
        return f"{outcome.mb:.0f} MB"
    if _UNSAFE.search(out) or _UNSAFE.search(err):
        return f"raw control characters: {(_UNSAFE.search(out) or _UNSAFE.search(err))!r:.80}"
    page = work / "report.html"
    if page.exists():
        text = page.read_text("utf-8", "replace")
        page.unlink()
        if "<img src=x" in text or "<script>alert" in text:
            return "HTML of the record's in the report"
    return ""


# -- the whole --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What one reader has come to."""

    cases: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    mb: float = 0.0
    seconds: float = 0.0


class Fuzz:
    """Records to begin with, and a folder to change copies of them in."""

    def __init__(self, base: Path, seed: int, *, demo: bool) -> None:
        self.base, self.seed = base, seed
        self.home, self.work = base / "home", base / "work"
        self.work.mkdir()
        self.originals = originals(base, demo)
        self.tallies = {name: Tally() for name in READERS}
        self.failed: dict[int, str] = {}

    def case(self, number: int, readers: list[str] | None = None) -> dict[str, str]:
        """Make one hostile record between two good ones, and let everyone read it; what went wrong, by reader."""
        chance = random.Random(f"{self.seed} {number}")
        shutil.rmtree(self.home, ignore_errors=True)
        original = chance.choice(self.originals)
        folder = self.home / "runs" / RUN
        shutil.copytree(original, folder, symlinks=True)
        for beside in ("r-0001", "r-0003"):
            shutil.copytree(self.originals[0], self.home / "runs" / beside)
        done = changed_apart(folder, chance, self.work / "done")
        os.environ["HOLTER_HOME"] = str(self.home)
        found = {}
        for name in readers or READERS:
            outcome = read_by(name, folder, self.work)
            tally = self.tallies[name]
            tally.cases += 1
            tally.mb, tally.seconds = max(tally.mb, outcome.mb), max(tally.seconds, outcome.seconds)
            if outcome.wrong:
                tally.wrong[outcome.wrong.partition(":")[0]] += 1
                found[name] = f"{outcome.wrong}  [{original.name}: {', '.join(done)}]"
        return found

    def table(self) -> str:
        head = f"{'reader':14} {'records':>8} {'failed':>7} {'most MB':>8} {'CPU s':>10}"
        rows = [
            f"{name:14} {tally.cases:>8,} {tally.wrong.total():>7} {tally.mb:>8.0f} {tally.seconds:>10.1f}"
            for name, tally in self.tallies.items()
        ]
        return "\n".join([head, *rows])


def originals(base: Path, demo: bool) -> list[Path]:
    """Real records: of a run that raised, of the demo, and of runs as the tests of the views build them."""
    home = base / "originals"
    script = base / "train.py"
    script.write_text(SCRIPT)
    environ = {**os.environ, "HOLTER_HOME": str(home)}
    run = ["-m", "holter", "run", "--", sys.executable, str(script)]
    for words in (run, *([["-m", "holter", "demo"]] if demo else []), ["-c", BUILT]):
        command = [sys.executable, *words]
        subprocess.run(command, env=environ, capture_output=True, cwd=ROOT, timeout=120, check=False)
    return sorted((home / "runs").iterdir())


# In a process of its own: the memory that it takes is not the readers'.
BUILT = """
import os, sys
from pathlib import Path
sys.path[:0] = [os.getcwd(), "tests/diagnosis"]
from tests.views.conftest import keep
from tests.views.records import ALL
for make in ALL.values():
    keep(make(), Path(os.environ["HOLTER_HOME"]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=3600.0)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path, help="where the first record of each kind of failure is put")
    asked = parser.parse_args()
    # Before the forks, so that each need not.
    import holter.commands._show
    import holter.diagnosis.core.rule
    import holter.figures.record_worker
    import holter.views.web.page

    holter.diagnosis.core.rule.find_rules()
    with tempfile.TemporaryDirectory(prefix="holter-fuzz-") as name:
        fuzz = Fuzz(Path(name), asked.seed, demo=asked.seconds >= 60)  # it takes half a minute
        begun = shown = time.monotonic()
        number, kinds = asked.case or 0, set()
        while time.monotonic() - begun < asked.seconds:
            for reader, wrong in fuzz.case(number).items():
                kind = (reader, wrong.partition("  [")[0][:100])
                if kind not in kinds:
                    print(f"case {number}: {reader}: {wrong}", flush=True)
                    if asked.keep:
                        kept = asked.keep / f"case-{number}"
                        shutil.rmtree(kept, ignore_errors=True)
                        shutil.copytree(fuzz.home, kept, symlinks=True, ignore=_pipes)
                kinds.add(kind)
            if asked.case is not None:
                break
            number += 1
            if time.monotonic() - shown > 300:
                shown = time.monotonic()
                print(f"{shown - begun:.0f} s\n{fuzz.table()}", flush=True)
        print(f"\nseed {asked.seed}, {time.monotonic() - begun:,.0f} s\n{fuzz.table()}")
        sys.exit(1 if kinds else 0)


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_fifo()]


if __name__ == "__main__":
    main()
