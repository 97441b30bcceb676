"""The agent comes in unseen: what a script sees and says is what it was without us."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holter.recorder.stacks import take
from tests.agent.agent_run import INJECT
from tests.conftest import Holter


class House:
    """A folder with a script and a room for agents; runs Python there with and without the agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agents = folder / "guests"
        self.agents.mkdir()
        self.started: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def environ(self, agent: bool, extra: dict[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLTER", "PYTHON"))}
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
        path = [extra.pop("PYTHONPATH")] if "PYTHONPATH" in extra else []
        if agent:
            kept["HOLTER_AGENT_DIR"] = str(self.agents)
            path.insert(0, str(INJECT))
        if path:
            kept["PYTHONPATH"] = os.pathsep.join(path)
        return {**kept, **extra}

    def start(self, *words: str, agent: bool = True, **extra: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *words],
            env=self.environ(agent, extra),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def python(self, *words: str, agent: bool = True, **extra: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        process = self.start(*words, agent=agent, **extra)
        out, err = process.communicate(timeout=600)
        return process.returncode, out, err

    def both(self, *words: str, **extra: str) -> tuple[Any, Any]:
        """The same without and with the agent."""
        return self.python(*words, agent=False, **extra), self.python(*words, **extra)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.agents.glob("*.jsonl")):
            found += [json.loads(line) for line in path.read_text().splitlines()]
        return [event for event in found if kind in (None, event["k"])]

    def rings(self) -> list[int]:
        return sorted(int(path.name.partition(".")[0]) for path in self.agents.glob("*.ring"))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def without_addresses(text: object) -> str:
    return re.sub("0x[0-9a-f]+", "", str(text))


LOOK = """
import sys
ours = {"_holter", "atexit", "faulthandler", "fcntl", "resource"}
print(sys.path)
print([f for f in sys.meta_path if not type(f).__module__.startswith("_holter")])
print(sorted(m for m in sys.modules if m.split(".")[0] not in ours and m != "sitecustomize"))
print(sys.argv, sys.flags, sys.warnoptions, sys.excepthook is sys.__excepthook__, sys.stdout.encoding)
print(__name__, __file__)
"""


def test_a_script_sees_the_same_interpreter(house: House) -> None:
    """Path, finders, modules, flags and hooks; only small C modules and our own finders are added."""
    house.write("train.py", LOOK)
    plain, watched = house.both("train.py", "--lr", "1")

    assert without_addresses(watched) == without_addresses(plain)


def test_a_module_of_the_scripts_own_is_found_before_a_standard_one(house: House) -> None:
    """A script may bring its own json.py or types.py: the agent has not imported the standard ones before it."""
    for name in ("json", "signal", "linecache", "token", "types", "queue"):
        house.write(f"{name}.py", f"print('my own {name}')")
    house.write("train.py", "import json, signal, linecache, token, types, queue")
    plain, watched = house.both("train.py")

    assert watched == plain
    assert plain[1].count("my own") == 6


def test_the_users_own_sitecustomize_runs_too(house: House) -> None:
    """And it is the one in sys.modules."""
    house.write("site/sitecustomize.py", "import sys; sys.mine = 'ran'; WHO = 'user'")
    house.write("train.py", "import sys, sitecustomize; print(sys.mine, sitecustomize.WHO, sitecustomize.__file__)")
    plain, watched = house.both("train.py", PYTHONPATH="site")

    assert watched == plain
    assert watched[1].startswith("ran user")


@pytest.mark.parametrize(
    "text", ["1/0", "import no_such_module_here", "raise ImportError('odd')", "raise OSError(2, 'odd')", "def"]
)
def test_an_error_of_the_users_sitecustomize_is_shown_as_without_us(house: House, text: str) -> None:
    """The same words on stderr, and the script runs or does not run as before."""
    house.write("site/sitecustomize.py", text)
    house.write("train.py", "print('ran')")
    plain, watched = house.both("train.py", PYTHONPATH="site")

    assert watched == plain
    assert "holter" not in watched[2]


def test_usercustomize_works(house: House) -> None:
    """It comes after us, as it comes after sitecustomize."""
    house.write("site/usercustomize.py", "print('user')")
    words = ("-c", "import site; print(site.ENABLE_USER_SITE)")
    enabled = "True" in house.python(*words, agent=False)[1]
    plain, watched = house.both("-c", "print('ran')", PYTHONPATH="site")

    assert watched == plain
    assert ("user" in watched[1]) is enabled


@pytest.mark.parametrize(
    "text",
    [
        "print('hello'); import sys; sys.stderr.write('to stderr')",
        "import warnings; warnings.warn('careful'); warnings.warn('old', DeprecationWarning)",
        "import json, re, subprocess, threading, logging; logging.warning('x')",
        "def f(): return 1 / 0\nf()",
        "try:\n    {}['x']\nexcept KeyError as e:\n    raise ValueError('odd') from e",
        "import sys; sys.exit('a message')",
        "raise SystemExit(9)",
        "import os; os._exit(5)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import threading; t = threading.Thread(target=lambda: 1/0); t.start(); t.join()",
        "import atexit; atexit.register(print, 'bye'); raise KeyboardInterrupt",
    ],
    ids=lambda text: text[:40],
)
def test_a_plain_script_says_and_ends_the_same(house: House, text: str) -> None:
    """Every byte of stdout and stderr, and the exit code."""
    house.write("train.py", text)
    plain, watched = house.both("train.py")

    assert watched == plain


def test_a_tool_that_trains_nothing_says_nothing(house: House) -> None:
    """No event and no ring: only an empty file for take."""
    assert house.python("-m", "json.tool", "--help")[0] == 0
    assert house.python("-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])")[0] == 0

    assert house.events() == []
    assert {path.suffix for path in house.agents.iterdir()} == {".stacks"}
    assert {path.stat().st_size for path in house.agents.iterdir()} == {0}


@pytest.mark.parametrize("flag", ["-S", "-I", "-E", "-IS"])
def test_where_the_agent_cannot_come_in_nothing_is_written(house: House, flag: str) -> None:
    """And the script runs as it would."""
    assert house.python(flag, "-c", "print('ran')") == (0, "ran\n", "")

    assert list(house.agents.iterdir()) == []


@pytest.mark.parametrize("flag", ["-S", "-E"])
def test_the_record_says_why_there_is_no_agent(holter: Holter, wait_for: Callable[..., Any], flag: str) -> None:
    """Once for the process, with the flag that shut it out."""
    process = holter.start("run", "--", sys.executable, flag, "-c", "input()")
    wait_for(lambda: holter.record().exists() and holter.events("no-guest"), "the reason")
    process.communicate(b"\n")
    (event,) = holter.events("no-guest")

    assert process.returncode == 0
    assert f"started with {flag}," in event["because"]


@pytest.mark.parametrize("harm", ["vanished", "a file", "read-only", "vanishes later"])
def test_an_agents_folder_that_cannot_be_used_harms_nothing(house: House, harm: str) -> None:
    """The script runs to its end, with no word of ours."""
    house.write(
        "train.py",
        f"""
        import os, shutil, time
        if {harm == "vanishes later"}:
            shutil.rmtree(os.environ["HOLTER_AGENT_DIR"], ignore_errors=True)
        import holter
        for i in holter.track(range(5)):
            holter.step(loss=1.0)
        if os.fork() == 0:
            holter.step()
            os._exit(0)
        os.wait()
        print("trained")
        raise ValueError("odd")
        """,
    )
    if harm == "vanished":
        house.agents.rmdir()
    elif harm == "a file":
        house.agents.rmdir()
        house.agents.write_text("")
    elif harm == "read-only":
        # Root may write anywhere but here.
        house.agents = Path("/proc/self/task")
    source = str(Path(INJECT).parents[2])
    plain = house.python("train.py", agent=False, PYTHONPATH=source, HOLTER_AGENT_DIR="/nowhere")
    watched = house.python("train.py", PYTHONPATH=source)

    assert watched == plain
    assert watched[:2] == (1, "trained\n")


def test_a_working_folder_that_is_gone_harms_nothing(house: House) -> None:
    """Not even a word: relative paths can't be resolved there."""
    start = "subprocess.run([sys.executable, '-c', 'print(1)'])"
    code = f"import os, subprocess, sys; os.mkdir('x'); os.chdir('x'); os.rmdir('../x'); {start}"
    plain, watched = house.both("-c", code)

    assert watched == plain
    assert watched[1] == "1\n"


FORKS = """
import os, sys, time
import multiprocessing as mp
import holter

def work(name):
    for i in holter.track(range(7)):
        holter.step(loss=float(i))
    print(name, os.getpid(), flush=True)

if __name__ == "__main__":
    for i in holter.track(range(50)):
        holter.step()
    print("parent", os.getpid(), flush=True)
    if sys.argv[1] == "os.fork":
        pid = os.fork()
        if pid == 0:
            work("child")
            sys.exit(0)
        os.waitpid(pid, 0)
    else:
        process = mp.get_context(sys.argv[1]).Process(target=work, args=("child",))
        process.start()
        process.join()
    holter.step()
"""


@pytest.mark.parametrize("how", ["os.fork", "fork", "spawn", "forkserver"])
def test_a_child_has_files_of_its_own(house: House, how: str) -> None:
    """It counts its own steps, and the parent's ring holds the parent's alone."""
    from holter.record.ring_reader import RingView

    house.write("train.py", FORKS)
    code, out, err = house.python("train.py", how, PYTHONPATH=str(Path(INJECT).parents[2]))
    pids = {line.split()[0]: int(line.split()[1]) for line in out.splitlines()}
    views = {pid: RingView(next(house.agents.glob(f"{pid}.*ring")).read_bytes()) for pid in house.rings()}

    assert (code, err) == (0, "")
    assert set(views) == set(pids.values())
    assert views[pids["parent"]].state()["step"] == 51
    assert views[pids["child"]].state()["step"] == 7
    if how == "os.fork":  # it ends like a program of its own; multiprocessing leaves without a last word
        assert sum(slot.count for slot in views[pids["child"]].slots()) == 7
    assert sum(slot.count for slot in views[pids["parent"]].slots()) == 51
    assert {event["pid"] for event in house.events("guest")} == set(pids.values())


def test_a_forked_childs_crash_is_written_into_its_own_file(house: House) -> None:
    """And the parent's stays empty."""
    code = "import os, sys\npid = os.fork()\nif pid == 0: os.abort()\nos.waitpid(pid, 0)\nprint(os.getpid(), pid)"
    house.write("train.py", code)
    out = house.python("train.py")[1].split()
    parent, child = (house.agents / f"{pid}.stacks" for pid in out)

    assert "Fatal Python error: Aborted" in child.read_text()
    assert parent.read_text() == ""


def test_many_generations_of_forks_leak_no_descriptor(house: House) -> None:
    """Each child has as many open files as its parent had."""
    house.write(
        "train.py",
        """
        import os
        for generation in range(6):
            print(len(os.listdir("/proc/self/fd")), flush=True)
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
                os._exit(0)
        """,
    )

    assert len(set(house.python("train.py")[1].split())) == 1


def test_a_script_that_closes_all_files_is_not_written_into(house: House) -> None:
    """A daemon closes everything and opens its own: no line of ours lands in a file of the user's."""
    house.write(
        "train.py",
        """
        import os, holter
        holter.step()
        os.closerange(3, 4096)
        files = [open(f"own-{n}", "w") for n in range(20)]
        for _ in range(100):
            holter.step(loss=1.0)
        if os.fork() == 0:
            os.abort()
        os.wait()
        raise ValueError("odd")
        """,
    )
    house.python("train.py", PYTHONPATH=str(Path(INJECT).parents[2]))

    assert {path.read_text() for path in house.folder.glob("own-*")} == {""}
    assert [event["message"] for event in house.events("exception")] == ["odd"]


def test_an_uncaught_exception_is_said_with_its_frames_and_chain(house: House) -> None:
    """The user's lines with their code, the library's marked as such, and the cause behind it."""
    house.write(
        "train.py",
        """
        import json
        def load():
            try:
                json.loads("{")
            except ValueError as error:
                raise RuntimeError("no data") from error
        load()
        """,
    )
    plain, watched = house.both("train.py")
    (event,) = house.events("exception")

    assert watched == plain
    assert (event["type"], event["message"], event["main"]) == ("RuntimeError", "no data", True)
    assert [(f["line"], f["function"], f["code"]) for f in event["frames"]] == [
        (8, "<module>", "load()"),
        (7, "load", 'raise RuntimeError("no data") from error'),
    ]
    assert all(frame["user"] for frame in event["frames"])
    assert event["chain"][0]["type"] == "JSONDecodeError"
    assert [frame["user"] for frame in event["chain"][0]["frames"]][:2] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "class Odd(Exception):\n    def __str__(self): raise KeyError('no words')\nraise Odd",
        "def f(): f()\nf()",
        "raise Exception('x' * 10**6)",
        "raise Exception('\\udcff')",
        "e = ValueError('a'); e.__context__ = e.__cause__ = ValueError('b'); raise e",
    ],
    ids=["no words", "deep", "long", "half a character", "chained"],
)
def test_an_odd_exception_is_said_too(house: House, text: str) -> None:
    """One that can't be put into words, one a thousand frames deep, one of a megabyte."""
    house.write("train.py", text)
    plain, watched = house.both("train.py")
    (event,) = house.events("exception")

    assert watched == plain
    assert len(event["message"]) <= 4000
    assert 0 < len(event["frames"]) <= 40


# A framework of our own making: the adapters wait for its name, and decline it.
FAKE_TORCH = "__version__ = '2.13.0'\n"


def test_a_framework_that_fails_to_import_fails_as_without_us(house: House) -> None:
    """The traceback shows none of our frames, whatever kind of error it is."""
    house.write("train.py", "import torch")
    for text in ("1/0", "import no_such_library", "raise ImportError('libcudart.so.12')", "def"):
        house.write("torch/__init__.py", text)
        plain, watched = house.both("train.py")

        assert watched == plain
        assert plain[0] == 1


def test_a_frameworks_warning_points_at_the_same_line(house: House) -> None:
    """Python counts frames to find it, and leaves out its own import machinery: ours must not count either."""
    house.write("torch/__init__.py", "import warnings\nwarnings.warn('old', stacklevel=2)\n" + FAKE_TORCH)
    house.write("train.py", "\nimport torch\nprint(torch.__spec__.loader, torch.__loader__ is torch.__spec__.loader)")
    plain, watched = house.both("train.py")

    assert without_addresses(watched) == without_addresses(plain)
    assert "train.py:2: UserWarning" in watched[2]


def test_a_framework_that_is_no_framework_is_declined(house: House) -> None:
    """A package that is only called torch: told as an adapter that could not come in, and used as before."""
    house.write("torch/__init__.py", FAKE_TORCH)
    look = "import importlib.util, copy\ncopy.copy(importlib.util.find_spec('torch').loader)\n"
    house.write("train.py", look + "import torch\nprint(torch.__version__)")
    plain, watched = house.both("train.py")

    assert watched == plain
    assert {event["state"] for event in house.events("adapter")} == {"declined"}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("call", "code", "stderr", "status"),
    [("sys.exit('bad data')", 1, "bad data\n", "bad data"), ("os._exit(4)", 4, "", "4")],
)
def test_an_exit_by_the_users_own_code_is_noted(house: House, call: str, code: int, stderr: str, status: str) -> None:
    """With its line, once, as soon as a framework is there; exit code and words are unchanged."""
    pytest.importorskip("torch")
    house.write("train.py", f"import os, sys, torch\ndef stop():\n    {call}\nstop()\n")
    watched = house.python("train.py")
    (event,) = house.events("exit-called")

    assert watched == (code, "", stderr)
    assert (Path(event["file"]).name, event["line"], event["function"]) == ("train.py", 3, "stop")
    assert (event["status"], event["code"]) == (status, call)


def test_an_exit_without_a_framework_is_nobodys_business(house: House) -> None:
    """A tool that ends with sys.exit says nothing."""
    house.write("train.py", "import sys; sys.exit(3)")

    assert house.python("train.py") == (3, "", "")
    assert house.events() == []


# --- take ---------------------------------------------------------------------------------------------------

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the signal is another one elsewhere")


@linux
@pytest.mark.parametrize(
    "block",
    [
        "time.sleep(6000)",
        "threading.Lock().acquire() and lock.acquire()",
        "while True: ctypes.PyDLL(None).sleep(6000)",  # holds the GIL all the while
    ],
)
def test_stacks_are_written_when_asked_for(house: House, wait_for: Callable[..., Any], block: str) -> None:
    """All threads, the main one with the user's line, also while a C call holds the GIL; the script goes on."""
    house.write(
        "train.py",
        f"""
        import ctypes, threading, time
        lock = threading.Lock()
        lock.acquire()
        threading.Thread(target=time.sleep, args=(6000,), daemon=True, name="second").start()
        print("ready", flush=True)
        {block}
        """,
    )
    process = house.start("train.py")
    assert process.stdout is not None
    process.stdout.readline()

    def blocked() -> list[dict[str, Any]]:
        found, _ = take.from_agent(process.pid, house.agents)
        return found if (take.place_of(found) or {}).get("line") == 7 else []

    threads = wait_for(blocked, "the block")
    again = wait_for(blocked, "the block, asked again")

    assert len(threads) == 2
    assert take.same_place(threads, again)
    assert process.poll() is None


@linux
def test_a_process_that_became_another_program_is_never_asked(house: House, wait_for: Callable[..., Any]) -> None:
    """After an exec nobody catches our signal, and it would kill: it is not sent."""
    house.write("train.py", "import os; os.execvp('sleep', ['sleep', '6000'])")
    process = house.start("train.py")
    wait_for(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "the other program")
    number = take.ask_signal()
    assert number is not None

    assert (house.agents / f"{process.pid}.stacks").exists()
    assert not take._safe(process.pid, number, house.agents / f"{process.pid}.stacks")
    assert take.from_agent(process.pid, house.agents) == ([], "")
    assert process.poll() is None


@linux
def test_a_process_whose_signal_is_its_own_is_never_asked(house: House) -> None:
    """A script that took the signal and closed our file gets none from us."""
    house.write(
        "train.py",
        f"""
        import os, signal, time
        signal.signal({take.ask_signal()}, signal.SIG_DFL)
        print("ready", flush=True)
        time.sleep(6000)
        """,
    )
    process = house.start("train.py")
    assert process.stdout is not None
    process.stdout.readline()

    assert take.from_agent(process.pid, house.agents) == ([], "")
    assert process.poll() is None


def test_a_crash_is_written_with_its_stack(house: House) -> None:
    """Into our file, since nobody else wanted it; stderr is as without us."""
    house.write("train.py", "import ctypes\ndef crash(): ctypes.string_at(0)\ncrash()")
    plain, watched = house.both("train.py")
    (file,) = house.agents.glob("*.stacks")

    assert watched == plain
    assert watched[0] == -signal.SIGSEGV
    assert "Segmentation fault" in file.read_text()
    assert "in crash" in file.read_text()


@pytest.mark.parametrize("how", ["PYTHONFAULTHANDLER", "-X", "enable"])
def test_the_users_own_faulthandler_keeps_its_place(house: House, how: str) -> None:
    """Its words for a crash come on stderr as before, also from a forked child."""
    enable = "import faulthandler; faulthandler.enable()\n" if how == "enable" else ""
    for crash in ("ctypes.string_at(0)", "os.fork() or ctypes.string_at(0); os.wait()"):
        house.write("train.py", f"{enable}import ctypes, os\n{crash}")
        words = ["-X", "faulthandler", "train.py"] if how == "-X" else ["train.py"]
        extra = {"PYTHONFAULTHANDLER": "1"} if how == "PYTHONFAULTHANDLER" else {}
        (code, out, err), (code_, out_, err_) = house.both(*words, **extra)

        # Threads have other addresses, and the list of extension modules names those that are loaded.
        def bare(text: str) -> str:
            return re.sub(r"0x[0-9a-f]+|\nExtension modules:.*", "", text)

        assert (code_, out_, bare(err_)) == (code, out, bare(err))
        assert "Segmentation fault" in err_


def test_a_low_limit_on_open_files_is_kept_clear_of(house: House) -> None:
    """Under `ulimit -n 64` our file takes one of the highest numbers, and the script's own the low ones."""
    house.write(
        "train.py", "import os; print(max(int(n) for n in os.listdir('/proc/self/fd')), os.open('/dev/null', 0))"
    )
    command = f"ulimit -n 64; exec {sys.executable} train.py"
    environ = house.environ(True, {})
    done = subprocess.run(["sh", "-c", command], cwd=house.folder, env=environ, capture_output=True, text=True)
    highest, own = map(int, done.stdout.split())

    assert highest >= 48
    assert own < 10


def test_the_arrival_costs_little(house: House) -> None:
    """The start of a Python takes less than four times the CPU that it takes by itself."""
    used = {False: 0.0, True: 0.0}
    for agent in (False, True) * 10:
        begun = os.times()
        house.python("-c", "pass", agent=agent)
        ended = os.times()
        used[agent] += ended.children_user + ended.children_system - begun.children_user - begun.children_system

    assert used[True] < 4 * used[False]


def test_exits_are_watched_once_and_still_do_what_they_did(capsys: pytest.CaptureFixture[str]) -> None:
    """Two frameworks in one process ask for it: one line is said, and the status is whatever was given."""
    from holter.agent.core.exit_hooks import ExitHooks
    from holter.agent.core.guard import Guard

    said: list[dict[str, Any]] = []

    def say(kind: str, **fields: Any) -> None:
        said.append({"k": kind, **fields})

    before = sys.exit, os._exit
    try:
        exit_hooks = ExitHooks(say, Guard(say))
        exit_hooks.watch_exit_calls()
        exit_hooks.watch_exit_calls()
        codes = []
        for arguments in ((), (None,), (3,), ("words",), (["list"],)):
            with pytest.raises(SystemExit) as caught:
                sys.exit(*arguments)
            with pytest.raises(SystemExit) as plain:
                before[0](*arguments)
            codes.append((caught.value.code, caught.value.args) == (plain.value.code, plain.value.args))
    finally:
        sys.exit, os._exit = before

    assert codes == [True] * 5
    assert [line["status"] for line in said] == ["None", "None", "3", "words", "['list']"]
    assert capsys.readouterr().err == ""
