"""Programs as people really write them, plain, under `holter run` and with `--heal`; and under memory limits.

    make wild                                 # all of them, some twenty minutes
    python bench/wild.py gpt vae --no-limits

Each program of bench/wild prints its losses and a digest of its weights, which must be the same in all three ways,
with not a word on its own output and no finding. Beside the peak that Holter shows stands the kernel's: the most that
the program's control group held of memory and shared memory, without pages of files, which can be dropped. Then it
runs in a memory cgroup of 85, 70 and 50 % of what it needs beyond its imports, without and with `--heal`: there every
program finishes or is declined with a reason, and none ends earlier than without. Needs root and the memory
controller for the limits. Ends with 1 where a digit differs, a healthy program is told to be ill, or `--heal` makes
one end earlier.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("wild")
CGROUP = Path("/sys/fs/cgroup/memory")
CALM = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
LIMITS = ("85", "70", "50")
LONGEST_S = 300.0
LOOK_S = 0.02
_SHOWN = re.compile(r"peak ([\d.]+) (MB|GB)")


@dataclass
class Run:
    """One run: how it ended, what it printed, what Holter found, how long it took and the most that it held.

    `peak` counts the pages of files that it read, too; `held` does not; `shown` is what Holter says.
    """

    code: int
    printed: list[str]
    causes: list[str]
    told: list[str]
    seconds: float
    peak: int
    held: int
    shown: float


def run(program: Path, way: str, limit: int | None = None) -> Run:
    """Run a program in a cgroup of its own, which is limited or only counts."""
    with tempfile.TemporaryDirectory() as home:
        group = CGROUP / f"holter-wild-{os.getpid()}"
        counted = make_group(group, limit)

        def join() -> None:
            if counted:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        options = {"plain": None, "watched": ["--quiet"], "heal": ["--quiet", "--heal"]}[way]
        before = [] if options is None else [sys.executable, "-m", "holter", "run", *options, "--"]
        environ = {**os.environ, **CALM, "HOLTER_HOME": f"{home}/holter", "TMPDIR": home}
        begun, held = time.monotonic(), _Held(group if counted and options is None else None)
        try:
            done = subprocess.run(
                [*before, sys.executable, str(program)], cwd=home, env=environ, preexec_fn=join, capture_output=True,
                text=True, timeout=LONGEST_S,
            )  # fmt: skip
            code, printed = done.returncode, done.stdout.splitlines()
        except subprocess.TimeoutExpired as late:
            code, printed = -99, str(late.stdout or "").splitlines()
        seconds = time.monotonic() - begun
        held.stop()
        peak = int((group / "memory.max_usage_in_bytes").read_text()) if counted else 0
        causes, told = _verdict(environ) if before else ([], [])
        shown = _shown(environ) if before else 0.0
        if counted:
            remove_group(group)
    return Run(code, printed, causes, told, seconds, peak, held.most, shown)


class _Held(threading.Thread):
    """Reads a control group's memory while a run is in it."""

    def __init__(self, group: Path | None) -> None:
        super().__init__(daemon=True)
        self.most, self.ended, self.group = 0, threading.Event(), group
        if group is not None:
            self.start()

    def run(self) -> None:
        assert self.group is not None
        while not self.ended.wait(LOOK_S):
            rows = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
            self.most = max(self.most, int(rows["total_rss"]) + int(rows.get("total_shmem", 0)))

    def stop(self) -> None:
        self.ended.set()
        if self.group is not None:
            self.join()


def _shown(environ: dict[str, str]) -> float:
    """The peak in the one line of the verdict, in bytes."""
    done = subprocess.run([sys.executable, "-m", "holter", "why"], env=environ, capture_output=True, text=True)
    found = _SHOWN.search(done.stdout)
    return float(found[1]) * (1e6 if found[2] == "MB" else 1e9) if found else 0.0


def make_group(group: Path, limit: int | None) -> bool:
    if os.geteuid() or not CGROUP.is_dir():
        return False
    group.mkdir()
    if limit is not None:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (group / name).exists():
                (group / name).write_text(str(limit))
    return True


def remove_group(group: Path) -> None:
    for _ in range(50):
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), 9)
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.1)


def _verdict(environ: dict[str, str]) -> tuple[list[str], list[str]]:
    """What Holter found, and what its healer says that it did or declined."""
    done = subprocess.run(
        [sys.executable, "-m", "holter", "why", "--json"], env=environ, capture_output=True, text=True
    )  # fmt: skip
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return ["no verdict"], []
    told = []
    for path in Path(environ["HOLTER_HOME"]).glob("runs/*/events.jsonl"):
        for line in path.read_text().splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("k") in ("intervention", "declined", "heal"):
                told.append(f"{event['k']}: {event.get('act', '')} {event.get('because', '')}".strip())
    return [one["cause"] for one in found["findings"] if one["grade"] != "hypothesis"], told


def imports_of(program: Path) -> int:
    """What the program's imports alone take: no limit can be lower."""
    lines = [line for line in program.read_text().splitlines() if line.startswith(("import ", "from "))]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write("\n".join(lines))
        script.flush()
        return run(Path(script.name), "plain").peak


def main() -> int:
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    limits = [word for word in LIMITS if "--no-limits" not in sys.argv]
    programs = [one for one in sorted(FOLDER.glob("*.py")) if not names or any(n in one.stem for n in names)]
    wrong, peaks = 0, []
    print(
        f"{'program':28} {'plain':>6} {'peak':>7} {'held':>7} {'shown':>7}  watched     heal        "
        + "".join(f"{n:>4} %: plain/heal  " for n in limits)
    )
    for program in programs:
        plain = run(program, "plain")
        row = f"{program.stem:28} {plain.seconds:5.1f}s {plain.peak / 1e6:5.0f}MB {plain.held / 1e6:5.0f}MB"
        if plain.code:
            print(f"{row}  does not run by itself here: exit code {plain.code}", flush=True)
            continue
        for way in ("watched", "heal"):
            found = run(program, way)
            same = found.printed == plain.printed and found.code == 0
            wrong += not same or bool(found.causes)
            said = "same" if same else "DIFFERS"
            if way == "watched":
                row += f" {found.shown / 1e6:5.0f}MB"
                peaks += [found.shown / plain.held] if plain.held else []
            row += (
                f"  {said}{'!' + ','.join(found.causes) if found.causes else ''} {found.seconds / plain.seconds:4.2f}x"
            )
        base = imports_of(program) if limits and plain.peak else 0
        for share in limits if base else ():
            limit = base + (plain.peak - base) * int(share) // 100
            alone, healed = run(program, "watched", limit), run(program, "heal", limit)
            further = _how_far(healed) >= _how_far(alone)
            wrong += not further
            row += f"  {_ended(alone, plain)}/{_ended(healed, plain)}{'' if further else ' EARLIER'}"
        print(row, flush=True)
    if peaks:
        near = sum(abs(one - 1) <= 0.05 for one in peaks)
        print(f"the peak shown is within 5 % of the kernel's in {near} of {len(peaks)}")
    return 1 if wrong else 0


def _how_far(one: Run) -> int:
    return 10_000 if one.code == 0 else len(one.printed)


def _ended(one: Run, plain: Run) -> str:
    if one.code == 0:
        return f"done {one.seconds / plain.seconds:.1f}x"
    return ("stuck" if one.code == -99 else f"{one.code}") + (":" + one.causes[0] if one.causes else "")


if __name__ == "__main__":
    sys.exit(main())
