"""holter plan: the memory that a training will need, and the settings that fit, before it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from holter.commands._plan_progress import follow
from holter.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, HolterError, UsageError
from holter.planner.torch.first_steps import CALLED
from holter.record import environment


class NoPlan(HolterError):
    exit_code = 7


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option("--memory", metavar="AMOUNT", help="Plan for this much memory, such as 24GB, instead of this machine's.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "mps"]),
    help="Plan for this kind of device, instead of the script's own.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the plan as JSON.")
@click.option(
    "--apply",
    "applies",
    is_flag=True,
    help="Then run the command under `holter run --heal`, with the settings that fit.",
)
@click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(memory: str | None, device: str | None, as_json: bool, applies: bool, words: tuple[str, ...]) -> None:
    """Predict the memory that a training needs, and the settings that fit.

    COMMAND is started, watched for three training steps, and ended there; what it does before that, it does: files
    that it writes are written. Where these steps fail, as without enough memory, it is started once more and ended
    before the first. The plan is drawn from the model, the batch and the optimizer that were seen, on tensors
    that take no memory. The command's own output goes to stderr.

    Exits with 0 when a plan was made, 2 when the command line is wrong, 7 when no training step was seen.
    """
    if not words:
        raise UsageError("no command is given", "For example: holter plan -- python train.py")
    if memory is not None:
        from holter.planner.amounts import bytes_of

        try:
            bytes_of(memory)
        except ValueError as error:
            raise UsageError(str(error)) from None
    order = {"memory": memory, "device": device}
    found = _watch(words, order) or _watch(words, {**order, "before": True})
    if not found:
        raise NoPlan("no plan was made", "Try holter.plan from Python")
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        from holter.views.planned import write_plan

        write_plan(found, sys.stdout, width=shutil.get_terminal_size().columns)
    if applies:
        sys.exit(_apply(found, words))


def _watch(words: tuple[str, ...], order: dict[str, Any]) -> dict[str, Any]:
    """Start the command with an agent that plans, and bring its plan home; nothing where its first steps failed."""
    from holter.recorder.launch import run_dir

    agents = run_dir.make()
    if agents is None:
        raise NoPlan("there is no space for the agent's files", "Free 8 MB in the temporary folder")
    environ = run_dir.command_environ(agents, "", os.environ)
    environ[environment.PLAN] = json.dumps(order)
    try:
        # The plan alone is on stdout.
        code = _started(words, environ, agents, again=bool(order.get("before")))
        path = agents / "plan.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        failed = not found and code != 0 and (agents / CALLED).exists() and not order.get("before")
    except FileNotFoundError:
        print(f"holter: {words[0]}: command not found. Check its name and PATH", file=sys.stderr)
        sys.exit(EXIT_NOT_FOUND)
    except PermissionError:
        print(f"holter: {words[0]} can't be executed. Run it with its interpreter", file=sys.stderr)
        sys.exit(EXIT_NOT_EXECUTABLE)
    finally:
        _clear(agents)
    if found.get("error"):
        raise NoPlan(f"this training step can't be planned: {found['error']}", "Try holter.plan from Python")
    if failed:
        text = f"the first steps ended with code {code}: planned from the model's first call instead"
        print(f"holter: {text}", file=sys.stderr)
        return {}
    if not found:
        raise NoPlan(
            f"no training step of PyTorch was seen before the command ended with code {code}",
            "For Keras, and for models without an optimizer, call holter.plan from Python",
        )
    return found


def _started(words: tuple[str, ...], environ: Mapping[str, str], agents: Path, *, again: bool) -> int:
    with subprocess.Popen(list(words), env=environ, stdout=sys.stderr) as process:
        try:
            return follow(process, agents, again=again)
        except BaseException:  # Ctrl-C: the command has had it as well
            process.kill()
            raise


def _clear(agents: Path) -> None:
    shutil.rmtree(agents, ignore_errors=True)


def _apply(plan: dict[str, Any], words: tuple[str, ...]) -> int:
    """Hand the choice to `holter run`: as it is where that fits, else the setting with the fewest parts that does."""
    environ, text = {}, "it fits as it is"
    if not plan["fits"]:
        fitting = [row for row in plan.get("settings", []) if row["environ"] and row["fits"]]
        if not fitting:
            raise NoPlan(
                "no number of chunks makes it fit",
                "Precision, checkpointing and the optimizer are the script's own: change them there",
            )
        chosen = min(fitting, key=lambda row: row["accumulate"])
        environ = chosen["environ"]
        parts = chosen["accumulate"]
        text = f"applied: each batch in {parts} chunks with one update" if parts > 1 else f"applied: {chosen['name']}"
    from holter.commands._show import show_on_stderr
    from holter.commands._tell import tell_on_stderr
    from holter.commands.run import Healer
    from holter.recorder.launch.launch import Launch

    tell_on_stderr(text)
    launch = Launch(
        list(words), name=None, on_hang="report", heal=True, report=tell_on_stderr, healer=Healer("report", None),
        planned=environ,
    )  # fmt: skip
    return launch.run(show_on_stderr)
