"""The frameworks' own test suites, plain, under `holter run` and under `holter run --heal`: nothing may differ.

    make guests                        # all suites, for hours
    make guests SUITES="skorch keras"

Each suite is the one in the framework's source package on PyPI, in the version of the table below; torch's comes with
torch (bench/guests_torch.py). Where a test differs, the whole suite is run once more in all three ways, and those count
that differ again and are the same twice in the plain runs. (Alone they would not do: what one test's training leaves on
a class often shows in another file's test.) The first run makes an environment in .venvs/guests and keeps the downloads
there. Ends with 1 on any difference, and on a suite that takes longer than the limits below.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
HOME = BENCH.parent / ".venvs" / "guests"
SOURCES, LOGS, PYTHON = HOME / "sources", HOME / "logs", HOME / "env" / "bin" / "python"
LONGEST_S = 3 * 3600.0  # a suite that stands still
WAYS = {"plain": None, "watched": ["run", "--quiet", "--"], "heal": ["run", "--quiet", "--heal", "--"]}
SLOWEST = {"watched": 1.1, "heal": 1.2}  # of the plain wall time
TOLD = 60  # lines of differences of one suite: a fault at the root shows in hundreds of tests
TIMED_AGAIN = 2  # a suite over its limit is timed so many times more, and each way's shortest counts


@dataclass(frozen=True)
class Suite:
    """A framework's tests: where they lie in its source package, and what running them takes."""

    name: str
    version: str
    paths: tuple[str, ...]
    beside: tuple[str, ...] = ()  # packages that its tests import
    words: tuple[str, ...] = ()  # for pytest
    environ: dict[str, str] = field(default_factory=dict)


SEEDED = "GUESTS_SEEDED"  # whose random numbers begin alike: its tests draw their data where they are imported

_KERAS = "trainers callbacks optimizers models saving layers"

SUITES = (
    Suite("torch", "2.13.0", ("guests_torch.py",), ("expecttest", "numpy")),
    Suite(
        "skorch",
        "1.4.0",
        ("skorch/tests",),
        ("flaky", "pandas", "matplotlib", "gpytorch==1.15.2"),
        ("--ignore=skorch/tests/llm", "--ignore=skorch/tests/test_hf.py"),  # they download models
    ),
    Suite("gpytorch", "1.15.2", ("test",), environ={SEEDED: "torch"}),
    Suite("stable-baselines3", "2.9.2", ("tests",), ("pandas", "matplotlib", "rich", "tqdm", "tensorboard")),
    Suite("accelerate", "1.15.0", ("tests",), ("parameterized", "transformers==5.22.2")),
    Suite("optax", "0.2.8", ("optax",), ("absl-py", "scikit-learn", "flax"), ("-k", "not examples")),
    Suite(
        "keras",
        "3.15.1",
        tuple(f"keras/src/{part}" for part in _KERAS.split()),
        ("tensorflow-cpu==2.21.0", "jax==0.10.2", "absl-py", "pandas", "dm-tree", "grain"),
        environ={"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
    ),
)

# What would make one run of the same tests differ from the next by itself.
CALM = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "WANDB_MODE": "disabled",
}


# ---- inside: the process that runs a suite's tests -------------------------------------------------------------------


class Outcomes:
    """A pytest plugin that writes down each report as it comes, so that a crash loses only what had not run."""

    def __init__(self, path: str) -> None:
        self.file = Path(path).open("a", buffering=1)  # noqa: SIM115 - open until the process ends
        self._line(start=os.getpid())

    def _line(self, **what: Any) -> None:
        self.file.write(json.dumps(what) + "\n")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        outcome = report.outcome if report.when == "call" or report.skipped else "error"
        if hasattr(report, "wasxfail"):
            outcome = "xpassed" if report.passed else "xfailed"
        digits = dict(report.user_properties).get("digits")
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message[:400] if crash is not None else ""
        self._line(id=report.nodeid, outcome=outcome, digits=digits, why=why)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._line(id=report.nodeid, outcome="not collected", digits=None, why=str(report.longrepr)[-400:])


def inside(path: str, words: list[str]) -> int:
    """Run pytest in this process as `python -m pytest` in the suite's own folder would."""
    sys.path[0] = os.getcwd()
    if SEEDED in os.environ:
        importlib.import_module(os.environ[SEEDED]).manual_seed(0)
    import pytest

    # The suite's own settings where it has some, and never those of a folder above it, which are ours.
    own = Path("pyproject.toml")
    config = str(own) if own.exists() and "[tool.pytest" in own.read_text() else os.devnull
    ours = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-c", config, "--rootdir=."]
    ours.append("--continue-on-collection-errors")  # a file that needs what is not installed costs only itself
    return int(pytest.main([*words, *ours], plugins=[Outcomes(path)]))


# ---- outside: one run of a suite in one way --------------------------------------------------------------------------


@dataclass
class Run:
    """What came of a suite in one way: each test's outcome, and the exit code as if it were one more."""

    seen: dict[str, tuple[str, str | None]]
    why: dict[str, str]
    wall_s: float

    def differing(self, other: Run) -> list[str]:
        return sorted(one for one in self.seen.keys() | other.seen.keys() if self.seen.get(one) != other.seen.get(one))


def run(suite: Suite, way: str, folder: Path, python: str, words: list[str]) -> Run:
    """Run the chosen tests of a suite in one way, in a home of their own."""
    LOGS.mkdir(parents=True, exist_ok=True)
    holter = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="holter-guests-") as home:
        outcomes = Path(home, "outcomes")
        command = [python, str(Path(__file__).resolve()), "--inside", str(outcomes), *words, *suite.words]
        if holter is not None:
            command = [str(Path(sys.executable).parent / "holter"), *holter, *command]
        environ = {**os.environ, **CALM, **suite.environ, "HOLTER_HOME": f"{home}/holter", "TMPDIR": home}
        begun = time.monotonic()
        with (LOGS / f"{suite.name}-{way}.log").open("w") as log:
            try:
                code: int | str = subprocess.run(
                    command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    timeout=LONGEST_S, check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                code = f"stood still for {LONGEST_S:.0f} s"
        return _read(outcomes, code, time.monotonic() - begun)


_WORST = ("", "passed", "xpassed", "xfailed", "skipped", "failed", "error", "not collected")


def _read(path: Path, code: int | str, wall_s: float) -> Run:
    seen: dict[str, tuple[str, str | None]] = {}
    why: dict[str, str] = {}
    starts = 0
    for text in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(text)
        if "start" in line:
            starts += 1
            continue
        before = seen.get(line["id"], ("", None))[0]
        if _WORST.index(line["outcome"]) >= _WORST.index(before):
            seen[line["id"]] = (line["outcome"], line["digits"])
            why[line["id"]] = line["why"]
    seen["(exit code)"] = (str(code), None)
    if starts != 1:
        seen["(starts of the suite)"] = (str(starts), None)
    return Run(seen, why, wall_s)


# ---- the comparison --------------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """A suite in all three ways."""

    suite: Suite
    runs: dict[str, Run]
    differing: dict[str, list[str]]  # way → tests that differed, and differed again
    once: dict[str, list[str]]  # way → tests that differed in one run alone, or differ plain
    wall_s: dict[str, float]

    def ratio(self, way: str) -> float:
        return self.wall_s[way] / self.wall_s["plain"]

    def faster(self, runs: dict[str, Run]) -> None:
        """Each way's shortest time is the one that the rest of the machine disturbed least."""
        self.wall_s = {way: min(self.wall_s[way], one.wall_s) for way, one in runs.items()}

    def ran(self) -> bool:
        """A suite of which nothing runs can't differ."""
        return any(outcome == "passed" for outcome, _ in self.runs["plain"].seen.values())

    def slow(self) -> list[str]:
        return [way for way, most in SLOWEST.items() if self.ratio(way) > most]

    def row(self) -> list[str]:
        counts: dict[str, int] = {}
        for one, (outcome, _) in self.runs["plain"].seen.items():
            if not one.startswith("("):
                counts[outcome] = counts.get(outcome, 0) + 1
        return [
            f"{self.suite.name} {self.suite.version}",
            str(sum(counts.values())),
            ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items(), key=lambda item: -item[1])) or "none",
            str(len(self.differing["watched"])),
            str(len(self.differing["heal"])),
            str(len(set(self.once["watched"]) | set(self.once["heal"]))),
            f"{self.wall_s['plain']:.0f} s",
            f"{self.ratio('watched'):.2f}",
            f"{self.ratio('heal'):.2f}",
        ]


HEAD = ["suite", "tests", "plain", "differ watched", "differ --heal", "differ once", "wall", "× watched", "× --heal"]


def compare(
    suite: Suite, folder: Path, python: str, words: list[str] | None = None, timed_again: int = TIMED_AGAIN
) -> Compared:
    """Run a suite in all three ways, once more where something differs, and time again what is over its limit."""
    words = list(suite.paths) if words is None else words
    runs = {way: run(suite, way, folder, python, words) for way in WAYS}
    differing = {way: runs["plain"].differing(runs[way]) for way in SLOWEST}
    compared = Compared(suite, runs, differing, {way: [] for way in SLOWEST}, {way: runs[way].wall_s for way in WAYS})
    if any(differing.values()):
        seen_once = ", ".join(f"{len(tests)} {way}" for way, tests in differing.items())
        print(f"{suite.name}: differ in one run: {seen_once}; once more", flush=True)
        again = {way: run(suite, way, folder, python, words) for way in WAYS}
        flaky = set(runs["plain"].differing(again["plain"]))
        compared.faster(again)
        for way, seen in differing.items():
            kept = set(again["plain"].differing(again[way])) - flaky
            compared.differing[way] = [one for one in seen if one in kept]
            compared.once[way] = [one for one in seen if one not in kept]
    for _ in range(timed_again):
        if compared.slow():
            compared.faster({way: run(suite, way, folder, python, words) for way in WAYS})
    return compared


def differences(compared: Compared) -> list[str]:
    """Each difference in words: what the test came to plain, and what in the other way."""
    lines = []
    for kind, found in (("differs", compared.differing), ("differed once", compared.once)):
        for way, tests in found.items():
            for one in tests:
                plain, other = (compared.runs[which].seen.get(one, ("did not run", None)) for which in ("plain", way))
                lines.append(f"{compared.suite.name}, {way}, {kind}: {one}: {plain[0]} → {other[0]}")
                if plain[0] == other[0]:
                    lines.append(f"    digits {plain[1]} → {other[1]}")
                why = compared.runs[way].why.get(one) or compared.runs["plain"].why.get(one)
                lines += [f"    {why}"] if why else []
    return lines if len(lines) <= TOLD else [*lines[:TOLD], f"... and {len(lines) - TOLD} lines more: see {LOGS}"]


# ---- the environment and the sources ---------------------------------------------------------------------------------


def environment(suites: list[Suite]) -> None:
    """Make the environment that the chosen suites need; what is there already is not asked for again."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "env")], check=True)
    there = HOME / "installed"
    done = set(there.read_text().splitlines()) if there.exists() else set()
    # torch first and by itself: the pinned build keeps the others from pulling in a CUDA one.
    for wanted in (["torch==2.13.0"], ["pytest"], *([f"{s.name}=={s.version}", *s.beside] for s in suites)):
        asked = " ".join(wanted)
        if asked not in done:
            subprocess.run([str(PYTHON), "-m", "pip", "install", *_QUIETLY, *wanted], check=True)
            with there.open("a") as file:
                file.write(asked + "\n")


_QUIETLY = ("--quiet", "--disable-pip-version-check")


def source(suite: Suite, python: str) -> Path:
    """The unpacked source package of a suite, downloaded once."""
    if suite.name == "torch":
        return BENCH
    folder = SOURCES / f"{suite.name.replace('-', '_')}-{suite.version}"
    if not folder.exists():
        SOURCES.mkdir(parents=True, exist_ok=True)
        wanted = f"{suite.name}=={suite.version}"
        subprocess.run(
            [python, "-m", "pip", "download", *_QUIETLY, "--no-deps", "--no-binary", suite.name, wanted],
            cwd=SOURCES, check=True,
        )  # fmt: skip
        with tarfile.open(folder.with_name(folder.name + ".tar.gz")) as packed:
            packed.extractall(folder.with_suffix(".part"), filter="data")
        (folder.with_suffix(".part") / folder.name).rename(folder)
        shutil.rmtree(folder.with_suffix(".part"))
    return folder


def table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help=", ".join(suite.name for suite in SUITES))
    parser.add_argument("--only", metavar="PATH", action="append", help="these files of the suite alone")
    asked = parser.parse_args()
    suites = [suite for suite in SUITES if not asked.suites or suite.name in asked.suites]
    unknown = set(asked.suites) - {suite.name for suite in suites}
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}")
    environment(suites)
    rows, bad = [HEAD], False
    for suite in suites:
        compared = compare(suite, source(suite, str(PYTHON)), str(PYTHON), asked.only)
        rows.append(compared.row())
        print(table([HEAD, rows[-1]]), *differences(compared), sep="\n", flush=True)
        bad |= any(compared.differing.values()) or bool(compared.slow()) or not compared.ran()
    print()
    print(table(rows))
    return int(bad)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(sys.argv[2], sys.argv[3:]))
    sys.exit(main())
