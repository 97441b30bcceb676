"""Kills, stops and hang-ups at random moments, to trainer, recorder and keeper: `make kills`, N=100 for fewer.

Each round runs a small training under `holter run` with its output in a pipe, sends one signal at a random moment, from
the first instant of Holter's own start to the end, and holds three things against each other: the exit code, the bytes
that came out, and the verdict on the record. Rounds are drawn from a seed: SEED=7 draws others.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from holter.commands._show import show
from holter.record import place

CODE = 7  # of a training that came to its end
STEPS = 300
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGSTOP")
VICTIMS = ("trainer", "recorder", "keeper")
TRAIN = """
import os, sys, time, zlib
import holter
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
check = 0
for step in range(int(sys.argv[2])):
    check = zlib.crc32(b"%d" % step, check)
    os.write(1, b"step %d %08x\\n" % (step, check))
    os.write(log, b"%d\\n" % step)
    holter.step(loss=1.0 / (step + 1))
    time.sleep(0.003)
os.write(log, b"done\\n")
sys.exit(7)
"""


@dataclass
class Round:
    """One signal and what came of it."""

    seed: int
    victim: str
    name: str
    moment: float
    sent: bool = False
    begun: bool = False
    faults: dict[str, str] = field(default_factory=dict)  # unreadable, exit code or harmed -> what was seen


def whole(steps: int) -> bytes:
    """What a training that was left alone prints."""
    out, check = [], 0
    for step in range(steps):
        check = zlib.crc32(b"%d" % step, check)
        out.append(b"step %d %08x\n" % (step, check))
    return b"".join(out)


def play(folder: Path, seed: int, span: float) -> Round:
    """One round in a folder of its own; the moment is drawn from the first `span` seconds, 0 for never."""
    draw = random.Random(seed)
    one = Round(seed, draw.choice(VICTIMS), draw.choice(SIGNALS), draw.random() * span)
    (folder / "train.py").write_text(TRAIN)
    log = folder / "log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLTER")}
    environ["HOLTER_HOME"] = str(folder / "home")
    words = [
        sys.executable,
        "-m",
        "holter",
        "run",
        "--",
        sys.executable,
        str(folder / "train.py"),
        str(log),
        str(STEPS),
    ]
    with open(folder / "stderr", "wb") as stderr:
        # In a session of its own: what Holter does to its group is done to nobody else.
        process = subprocess.Popen(
            words, env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
    # In two of three rounds the output is read as it comes, in the third when all is over.
    reader = Thread(target=lambda: out.append(process.stdout.read() if process.stdout is not None else b""))
    out: list[bytes] = []
    if seed % 3:
        reader.start()
    if span:
        time.sleep(one.moment)
        _strike(one, process)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        one.faults["exit code"] = "it never ended"
        os.killpg(process.pid, signal.SIGKILL)
    if not reader.is_alive() and not out:
        reader.start()
    reader.join()
    steps_logged = log.read_bytes().split() if log.exists() else []
    one.begun = bool(steps_logged)
    _judge(one, process.returncode, out[0], steps_logged)
    if one.begun:
        _read(one, folder / "home", process.returncode, steps_logged)
    return one


def _strike(one: Round, process: subprocess.Popen[bytes]) -> None:
    """Send the signal as soon as its victim is there; one that has ended is left alone."""
    pid: int | None = None
    until = time.monotonic() + 5.0
    while pid is None and process.poll() is None and time.monotonic() < until:
        pid = process.pid
        if one.victim != "recorder":
            pid = _child_of(pid)
        if one.victim == "trainer" and pid is not None:
            pid = _child_of(pid)
        time.sleep(0 if pid is not None else 0.0005)
    try:
        if pid is not None and process.poll() is None:
            os.kill(pid, getattr(signal, one.name))
            one.sent = True
            if one.name == "SIGSTOP":
                time.sleep(0.2)
                os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def _child_of(pid: int) -> int | None:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(found[0]) if found else None


def _judge(one: Round, code: int, out: bytes, steps_logged: list[bytes]) -> None:
    """Exit code and output, by what the training itself wrote down."""
    done = b"done" in steps_logged
    number = int(getattr(signal, one.name))
    ends = {128 + number}
    if one.name == "SIGINT" and len(steps_logged) < 3:
        ends.add(1)  # in the midst of an import, as without Holter
    allowed = {CODE}
    if one.sent and one.name != "SIGSTOP":
        if one.victim == "trainer":
            allowed = ends | ({CODE} if done else set[int]())
        elif one.victim == "recorder":
            killed = {-number} if one.name == "SIGKILL" or not steps_logged else set[int]()
            late = {CODE} if done else set[int]()
            forwarded = ends if one.name != "SIGKILL" and not done else set[int]()
            allowed = killed | late | forwarded
    if code not in allowed:
        one.faults.setdefault("exit code", f"{code}, not {sorted(allowed)}")
    meant_for_it = one.victim == "trainer" or (one.victim == "recorder" and one.name != "SIGKILL")
    unharmed = not one.sent or one.name == "SIGSTOP" or not meant_for_it
    expected = whole(STEPS)
    if unharmed and not done and (steps_logged or one.victim != "recorder"):
        one.faults["harmed"] = f"the training ended after {len(steps_logged)} of {STEPS} steps"
    elif not expected.startswith(out) or out.count(b"\n") < len([line for line in steps_logged if line != b"done"]):
        one.faults["harmed"] = f"{out.count(b'step')} lines came out of {len(steps_logged)} that were printed"
    elif done and out != expected:
        one.faults["harmed"] = f"{len(out)} bytes came out of {len(expected)}"


def _read(one: Round, home: Path, code: int, steps_logged: list[bytes]) -> None:
    """The verdict, as `holter why --json` gives it: the code that came out, also where Holter itself was killed."""
    try:
        (run_id,) = place.run_ids(home)
        stream = io.StringIO()
        show(place.runs_folder(home) / run_id, stream, as_json=True)
        ending = json.loads(stream.getvalue())["ending"]
    except Exception as error:
        one.faults["unreadable"] = f"{type(error).__name__}: {error}"
        return
    expected = CODE if code < 0 and b"done" in steps_logged else code
    if expected >= 0 and ending["exit_code"] != expected:
        one.faults["unreadable"] = f"the record says {ending}"


def table(rounds: list[Round]) -> str:
    heads = f"{'rounds':>7}{'sent':>6}{'unreadable':>12}{'wrong exit code':>17}{'harmed':>8}"
    lines = [f"{'what was signalled':<20}{'with':<18}{heads}"]
    for victim in VICTIMS:
        for name in SIGNALS:
            these = [one for one in rounds if (one.victim, one.name) == (victim, name)]
            lines.append(_row(victim, "SIGSTOP, SIGCONT" if name == "SIGSTOP" else name, these))
    return "\n".join([*lines, _row("all", "", rounds)])


def _row(victim: str, name: str, rounds: list[Round]) -> str:
    count = [sum(fault in one.faults for one in rounds) for fault in ("unreadable", "exit code", "harmed")]
    sent = sum(one.sent for one in rounds)
    return f"{victim:<20}{name:<18}{len(rounds):>7}{sent:>6}{count[0]:>12}{count[1]:>17}{count[2]:>8}"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("rounds", nargs="?", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=0, help="the first of the seeds, one for each round")
    asked.add_argument("--at-once", type=int, default=6)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as base, ThreadPoolExecutor(given.at_once) as pool:

        def one(seed: int, span: float) -> Round:
            while True:
                begun = time.monotonic()
                with tempfile.TemporaryDirectory(dir=base) as folder:
                    found = play(Path(folder), seed, span)
                if found.sent or found.faults or not span:
                    return found
                span = min(0.9 * span, time.monotonic() - begun)  # it was over before the moment came

        # How long a round takes here that is left alone, with as many beside it as later.
        begun = time.monotonic()
        undisturbed = list(pool.map(lambda seed: one(seed, 0.0), range(given.at_once)))
        span = time.monotonic() - begun
        if any(found.faults for found in undisturbed):
            sys.exit(f"a round without a signal already fails: {undisturbed}")
        rounds: list[Round] = []
        for found in pool.map(lambda seed: one(seed, span), range(given.seed, given.seed + given.rounds)):
            rounds.append(found)
            if len(rounds) % 100 == 0:
                faulty = sum(bool(one_.faults) for one_ in rounds)
                print(f"{len(rounds)} rounds, {faulty} with a fault", file=sys.stderr, flush=True)
    print(f"{given.rounds} rounds, the moment drawn from the first {span:.1f} s of each")
    print(table(rounds))
    for found in rounds:
        for fault, seen in found.faults.items():
            print(f"seed {found.seed}: {found.name} to the {found.victim} at {found.moment:.3f} s: {fault}: {seen}")
    return 1 if any(found.faults for found in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
