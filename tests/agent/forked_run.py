"""Runs a script in a fork of a Python that has imported torch already: the import takes longer than most scripts do.

The agent came into that Python as it comes into any, and a fork is a process of its own to it, with files of its own.
What a process says when its framework arrives (`adapter`, the first `guest`) is missing here, and so is a traceback as
Python prints it: a test of those starts a process, with `agent_run.run`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.agent.agent_run import Run, environ_of, recorded

_PATIENCE = 900
# In a folder that is no user's: the lines that it stands on are in the stack below each script.
_FOLDER = Path(tempfile.gettempdir()) / f"holter-forked-{os.getpid()}" / "site-packages"
_PARENT = """
import json, os, runpy, sys
import torch, torch._dynamo

answers = os.dup(1)
print("ready", flush=True)
for line in sys.stdin:
    folder = json.loads(line)
    os.chdir(folder)
    pid = os.fork()
    if not pid:
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "out", 577), (2, "err", 577)):
            fd = os.open(name, flags, 0o600)
            os.dup2(fd, number)
            os.close(fd)
        os.close(answers)
        sys.argv = ["train.py"]
        sys.path[0] = folder
        runpy.run_path("train.py", run_name="__main__")
        break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(answers, b"%d\\n" % code)
"""
_parents: dict[tuple[tuple[str, str], ...], subprocess.Popen[bytes]] = {}


def run(folder: Path, script: str, agent: bool = True, **environ: str) -> Run:
    """As `agent_run.run`; the first one with an environment imports torch for all that come after it."""
    (folder / "guests").mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(script))
    parent = _parent(agent, environ)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps(str(folder)).encode() + b"\n")
    parent.stdin.flush()
    if not select.select([parent.stdout], [], [], _PATIENCE)[0]:
        parent.kill()
        raise TimeoutError(f"the script in {folder} did not end within {_PATIENCE} s")
    code = int(parent.stdout.readline())
    return Run(code, (folder / "out").read_text(), (folder / "err").read_text(), *recorded(folder / "guests"))


def _parent(agent: bool, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    key = (("agent", str(agent)), *sorted(environ.items()))
    parent = _parents.get(key)
    if parent is None or parent.poll() is not None:
        # Where the agent writes is told by a path that each fork takes from its own folder.
        (_FOLDER / "guests").mkdir(parents=True, exist_ok=True)
        (_FOLDER / "parent.py").write_text(_PARENT)
        env = environ_of(Path("guests") if agent else None, environ)
        words = [sys.executable, str(_FOLDER / "parent.py")]
        parent = _parents[key] = subprocess.Popen(
            words, cwd=_FOLDER, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
    return parent
