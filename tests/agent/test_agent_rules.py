"""What runs inside the user's process keeps to Python 3.9 and to the standard library."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holter

SOURCE = Path(holter.__file__).resolve().parent
INJECTED = SOURCE / "agent" / "inject" / "sitecustomize.py"
AGENT_FILES = [
    *sorted((SOURCE / "agent").rglob("*.py")),
    SOURCE / "record" / "__init__.py",
    SOURCE / "record" / "environment.py",
    SOURCE / "record" / "ring_format.py",
    *sorted((SOURCE / "facts").rglob("*.py")),
]
# Standard modules that 3.9 does not have.
NEWER = {"tomllib", "_interpreters", "annotationlib", "compression", "concurrent.interpreters", "string.templatelib"}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", AGENT_FILES, ids=name_of)
def test_an_agents_file_parses_as_python_3_9(path: Path) -> None:
    """No `match`, no `except*`, no brackets around several `with` items."""
    assert ast.parse(path.read_text(), feature_version=(3, 9))


def test_a_newer_syntax_would_be_seen() -> None:
    """The check above can fail."""
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 9))


def test_agents_call_nothing_newer_than_python_3_9() -> None:
    """vermin knows when each function and argument of the standard library came."""
    pytest.importorskip("vermin")
    start = "import sys, vermin; sys.exit(vermin.main())"
    command = [sys.executable, "-c", start, "--no-tips", "--no-parse-comments", "-t=3.9-", "--violations"]
    done = subprocess.run([*command, *map(str, AGENT_FILES)], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", AGENT_FILES, ids=name_of)
def test_an_agent_imports_only_the_standard_library_and_its_own(path: Path) -> None:
    """Whatever is installed beside the user's framework, or is not; an adapter may ask for more of its own framework
    once that has been imported, so never when the adapter itself is."""
    package = path.relative_to(SOURCE).parts[:-1]
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [str(node.module)]
        elif isinstance(node, ast.ImportFrom):
            where = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            inside = where[0] in ("agent", "facts") or where[:1] == ["record"]
            assert inside, f"line {node.lineno}: {'.'.join(where)}"
            if where[0] == "record":
                below = where[1:] or [a.name for a in node.names]
                assert below[0] in ("ring_format", "environment"), node.lineno
            continue
        else:
            continue
        for name in names:
            top = name.split(".")[0]
            ours = path == INJECTED and name in ("_holter.agent.core", "sitecustomize")
            ours = ours or (
                path.stem.startswith("adapter") and top in (*path.parts, path.stem[8:]) and node not in tree.body
            )
            assert ours or top in sys.stdlib_module_names, f"line {node.lineno}: {name}"
            assert name not in NEWER


def old_python() -> str | None:
    found = shutil.which("python2.7", path="/usr/bin:/usr/local/bin")
    known = sorted((Path.home() / ".pyenv" / "versions").glob("2.7*/bin/python"))
    return found or (str(known[-1]) if known else None)


def test_what_is_injected_parses_as_python_2_7() -> None:
    """The one file that every Python reads which the command starts, of any age."""
    python = old_python()
    if python is None:
        pytest.skip("there is no Python 2.7 here")
    code = "import sys; compile(open(sys.argv[1]).read(), 'x', 'exec')"
    done = subprocess.run([python, "-c", code, str(INJECTED)], capture_output=True, text=True, env=dict(os.environ))

    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_signal_handler_raises_inside_our_code_goes_on():
    """The guard keeps our own errors, never one that the script's handler raised while it interrupted us."""
    import os
    import signal

    from holter.agent.core.guard import Guard

    def lost(_number, _frame):
        raise RuntimeError("a worker was killed")

    before = signal.signal(signal.SIGUSR1, lost)
    try:
        guarded = Guard(lambda *_args, **_fields: None)(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(RuntimeError, match="a worker was killed"):
            guarded()
    finally:
        signal.signal(signal.SIGUSR1, before)
