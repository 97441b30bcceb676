"""Imports among Holter's packages point down only, and names explain themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holter

SOURCE = Path(holter.__file__).resolve().parent
BOTTOM = {"finding", "units", "errors", "own_process"}

# package -> what of ours it may import, besides itself. The table of design.md, in words a test can hold.
MAY_IMPORT = {
    "finding": set[str](),
    "units": set[str](),
    "errors": set[str](),
    "own_process": set[str](),
    "record": BOTTOM,
    "probes": BOTTOM | {"record"},
    "facts": set[str](),
    "source": BOTTOM,
    "agent": {"record.ring_format", "record.environment", "facts"},
    "recorder": BOTTOM | {"probes", "record", "facts", "__init__"},
    "diagnosis": BOTTOM | {"source", "facts", "record.events"},
    "remedies": BOTTOM | {"record"},
    # It reads the probes once, and asks the user's interpreter what the agent asks there.
    "machine": BOTTOM | {"probes", "record", "facts", "recorder", "agent.observe", "__init__"},
    "check": BOTTOM | {"source"},
    # It asks the doctor's rules and the checks about what a run left behind, and the probes for the kernel's log.
    "autopsy": BOTTOM | {"probes", "record", "diagnosis", "check", "source", "recorder.platform"},
    "figures": BOTTOM | {"record", "diagnosis"},
    "views": BOTTOM,
    # It plans inside the script's own process, beside the agent, and asks the kernel what the agent asks.
    "planner": BOTTOM | {"record.environment", "facts"},
}
# The package's own face, its entry points, and the script of the demo: these may import everything.
FREE = {"__init__", "__main__", "commands", "demo_run"}
PLATFORMS = ("_linux", "_macos")


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of ours by its name below `holter`."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        yield ".".join(parts), path


def imports(name: str, path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """What of ours a module imports, by its name below `holter`, wherever in the file it does."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in ("holter", "_holter"):
                    yield alias.name.partition(".")[2] or "__init__", node
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                whole = [*base, *(node.module.split(".") if node.module else [])]
            elif node.module and node.module.split(".")[0] in ("holter", "_holter"):
                whole = node.module.split(".")[1:]
            else:
                continue
            for alias in node.names:
                below = SOURCE.joinpath(*whole, alias.name)
                is_module = below.is_dir() or below.with_suffix(".py").exists()
                yield ".".join([*whole, alias.name] if is_module else whole) or "__init__", node


ALL = dict(modules())


@pytest.mark.parametrize("name", [name for name in ALL if name.split(".")[0] not in FREE])
def test_imports_point_down_only(name: str) -> None:
    """A package sees only what lies below it."""
    top = name.split(".")[0]
    assert top in MAY_IMPORT, f"{name}: say in this table what {top} may import"
    for target, _node in imports(name, ALL[name]):
        if target.split(".")[0] == top:
            continue
        allowed = any(target == one or target.startswith(one + ".") for one in MAY_IMPORT[top])
        assert allowed, f"{name} imports {target}, which does not lie below {top}"


def test_the_test_sees_imports() -> None:
    """Relative, absolute and inside functions: the table is held against what is really there."""
    seen = {target for name, path in ALL.items() for target, _node in imports(name, path)}

    assert {
        "record.ring_format",
        "errors",
        "recorder.launch.launch",
        "agent.api",
        "probes.probe",
        "record.place",
    } <= seen


def test_nothing_imports_the_commands() -> None:
    """They are the top; only the package's own face hands a notebook on to them."""
    users = {name for name, path in ALL.items() for target, _ in imports(name, path) if target.startswith("commands")}

    assert {name.split(".")[0] for name in users} <= {"commands", "__main__", "__init__"}


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_name_explains_itself(name: str) -> None:
    """No drawers for whatever fits nowhere else."""
    words = {word for part in name.split(".") for word in part.strip("_").split("_")}

    assert not words & {"utils", "util", "helpers", "manager", "common", "misc"}


def test_a_platforms_modules_are_imported_only_by_its_own() -> None:
    """Shared code finds them by name on the machine at hand, so that no other platform ever loads them."""
    for name, path in ALL.items():
        for target, _node in imports(name, path):
            suffix = next((one for one in PLATFORMS if target.endswith(one)), None)
            assert suffix is None or name.endswith(suffix), f"{name} imports {target} on every platform"


def test_what_is_looked_up_by_platform_is_there() -> None:
    """A module that moved would else be taken for one that this platform does not have, without a word."""
    asked = {
        (name, *[word.value for word in call.args if isinstance(word, ast.Constant)])
        for name, path in ALL.items()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "here"
    }

    assert len(asked) >= 8
    for user, module, *package in asked:
        found = [f"{package[0] if package else 'probes'}.{module}{suffix}" for suffix in PLATFORMS]
        assert set(found) & set(ALL), f"{user} looks up {module}, which no platform has"


def test_no_module_is_a_ladder_of_platforms() -> None:
    """The platform is in the file's name: a probe asks for it nowhere."""
    for name, path in ALL.items():
        if name.startswith("probes.") and name.endswith(PLATFORMS):
            assert "sys.platform" not in path.read_text(), name


def test_the_variables_of_the_environment_are_spelt_once() -> None:
    """In record/environment.py; the one file that runs before it can be imported spells its own."""
    spelt = {
        name
        for name, path in ALL.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("HOLTER_[A-Z_]+", node.value)
    }

    assert spelt == {"record.environment", "agent.inject.sitecustomize"}
