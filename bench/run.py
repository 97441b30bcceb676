"""Holter's own cost, measured: every comparison interleaved in one run. `make bench` prints the tables.

run.py [startup] [agent] [agent-keras] [recorder] [overhead] [overhead-keras] [gpu]     by default all but gpu
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOLTER = [sys.executable, "-m", "holter", "run", "-q", "--"]
INJECT = HERE.parent / "src" / "holter" / "agent" / "inject"


def run(command: list[str], home: str, *, watched: bool) -> str:
    environ = {**os.environ, "HOLTER_HOME": home}
    done = subprocess.run([*(HOLTER if watched else []), *command], env=environ, capture_output=True, check=True)
    return done.stdout.decode().strip().splitlines()[-1]


def compare(command: list[str], rounds: int, home: str) -> tuple[float, float, float, bool]:
    """Plain and watched in turns: the plain median step, the ratio of medians, its spread, whether results agree."""
    ratios, plain_steps, results = [], [], set()
    for number in range(rounds):
        order = (False, True) if number % 2 else (True, False)  # neither side always runs second
        seen = {}
        for watched in order:
            median, _mean, result = run(command, home, watched=watched).split(maxsplit=2)
            seen[watched] = float(median)
            results.add(result)
        ratios.append(seen[True] / seen[False])
        plain_steps.append(seen[False])
    quarters = statistics.quantiles(ratios, n=4)
    return statistics.median(plain_steps), statistics.median(ratios), quarters[2] - quarters[0], len(results) == 1


def overhead(home: str, name: str, script: str) -> None:
    print("| loop | step | rounds | median of ratios | overhead | middle half of ratios | same result |")
    print("|---|---|---|---|---|---|---|")
    for milliseconds, steps, rounds in ((2, 1200, 9), (10, 300, 9), (100, 40, 5)):
        command = [sys.executable, str(HERE / script), str(milliseconds), str(steps)]
        step, ratio, spread, same = compare(command, rounds, home)
        print(
            f"| {name} | {step * 1e3:.2f} ms | {rounds} | {ratio:.4f} | {(ratio - 1) * 100:+.2f} % |"
            f" {spread * 100:.2f} % | {'yes' if same else 'NO'} |",
            flush=True,
        )


def agent(home: str, script: str = "agent_cost.py", kind: str = "cpu") -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as agents:
        environ = {**os.environ, "HOLTER_AGENT_DIR": agents, "PYTHONPATH": str(INJECT), "HOLTER_HOME": home}
        done = subprocess.run([sys.executable, str(HERE / script), kind], env=environ, capture_output=True, check=True)
        found = json.loads(done.stdout)
    low, middle, high = found["quartiles_us"]
    print("| | |\n|---|---|")
    print(f"| step without the agent | {found['step_us']:.0f} µs |")
    print(f"| added by the agent, in the loop, median of pairs | {middle:.1f} µs (quartiles {low:.1f} to {high:.1f}) |")
    if "warm_us" in found:
        print(f"| the agent's own code, warm | {found['warm_us']:.1f} µs |")
    sys.stdout.flush()


def recorder(home: str) -> None:
    seconds = 40
    command = [sys.executable, str(HERE / "loop_torch.py"), "10", str(seconds * 100)]
    before = {path.name for path in Path(home, "runs").glob("*")} if Path(home, "runs").exists() else set()
    process = subprocess.Popen([*HOLTER, *command], env={**os.environ, "HOLTER_HOME": home}, stdout=subprocess.DEVNULL)
    time.sleep(10)  # start-up and its imports are measured elsewhere
    first, begun = cpu_of(process.pid), time.monotonic()
    record = next(path for path in Path(home, "runs").iterdir() if path.name not in before)
    size = folder_size(record / "timeline") + folder_size(record / "events.jsonl")
    time.sleep(seconds - 15)
    used, span = cpu_of(process.pid) - first, time.monotonic() - begun
    grown = folder_size(record / "timeline") + folder_size(record / "events.jsonl") - size
    memory = memory_of(process.pid)
    process.wait()
    costs = [json.loads(line) for line in (record / "events.jsonl").read_text().splitlines() if '"k":"cost"' in line]
    print("| | |\n|---|---|")
    print(f"| recorder, share of a core in calm | {used / span * 100:.2f} % |")
    print(f"| recorder and keeper, memory (PSS) | {memory / 1e6:.1f} MB |")
    print(f"| record, growth per hour before thinning | {grown / span * 3600 / 1e6:.1f} MB |")
    print("\n| probe | µs of CPU a reading |\n|---|---|")
    for name, cost in sorted(costs[-1]["probes"].items()):
        print(f"| {name} | {cost * 1e6:.0f} |")
    sys.stdout.flush()


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Recorder and keeper: the keeper is the child that is Holter's own."""
    total = 0
    for child in [pid, *children_of(pid)]:
        for line in Path(f"/proc/{child}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def folder_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.glob("*"))


def startup(home: str) -> None:
    print("| command | plain | under Holter | added |\n|---|---|---|---|")
    for name, code in (("python -c pass", "pass"), ("import torch", "import torch")):
        taken: dict[bool, list[float]] = {True: [], False: []}
        for number in range(15):
            for watched in (False, True) if number % 2 else (True, False):
                begun = time.perf_counter()
                command = [*(HOLTER if watched else []), sys.executable, "-c", code]
                subprocess.run(command, env={**os.environ, "HOLTER_HOME": home}, check=True, capture_output=True)
                taken[watched].append(time.perf_counter() - begun)
        plain, watched_for = statistics.median(taken[False]), statistics.median(taken[True])
        print(f"| {name} | {plain:.3f} s | {watched_for:.3f} s | {watched_for - plain:+.3f} s |", flush=True)


def gpu(home: str) -> None:
    for kind in ("launch", "compute"):
        print(f"\n{kind}-bound, patches on and off in one process:\n")
        agent(home, kind=kind)
    print()
    print("| loop on the GPU | step | rounds | median of ratios | overhead | middle half of ratios |")
    print("|---|---|---|---|---|---|")
    for kind, steps, rounds in (("launch", 800, 5), ("compute", 200, 5)):
        command = [sys.executable, str(HERE / "loop_torch.py"), "0", str(steps), kind]
        step, ratio, spread, _same = compare(command, rounds, home)
        print(
            f"| {kind}-bound | {step * 1e3:.2f} ms | {rounds} | {ratio:.4f} | {(ratio - 1) * 100:+.2f} % |"
            f" {spread * 100:.2f} % |",
            flush=True,
        )


MEASURES: dict[str, Callable[[str], None]] = {
    "startup": startup,
    "agent": agent,
    "agent-keras": lambda home: agent(home, "agent_cost_keras.py"),
    "recorder": recorder,
    "overhead": lambda home: overhead(home, "PyTorch", "loop_torch.py"),
    "overhead-keras": lambda home: overhead(home, "Keras fit", "loop_keras.py"),
    "gpu": gpu,
}


def main() -> None:
    asked = sys.argv[1:] or [name for name in MEASURES if name != "gpu"]
    print(f"{date.today()}, {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory() as home:
        for name in asked:
            print(f"\n## {name}\n", flush=True)
            MEASURES[name](home)


if __name__ == "__main__":
    main()
