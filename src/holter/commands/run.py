"""holter run: start a command, record it, and say how and why it ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holter.commands._tell import tell_on_stderr
from holter.errors import UsageError

if TYPE_CHECKING:
    from holter.recorder.foreseeing import Foresee


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option("--name", metavar="NAME", help="A name for the run, to find it again by.")
@click.option(
    "--on-hang",
    type=click.Choice(["report", "stop"]),
    default="report",
    show_default=True,
    help="What to do when the run makes no progress: say so, or capture the stacks, end it and exit with 124.",
)
@click.option(
    "--heal",
    is_flag=False,
    flag_value="safe",
    metavar="[=all]",
    help="Keep the run going: split a batch that does not fit, with the same update. --heal=all also allows what "
    "changes the result, such as another precision or learning rate.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing, whatever happens; the record is written all the same.")
@click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(name: str | None, on_hang: str, heal: str | None, quiet: bool, words: tuple[str, ...]) -> None:
    """Run COMMAND and record it.

    The command runs as it would without Holter: the same output, signals and exit code. At the end a verdict goes to
    stderr: one line for a healthy run, the cause with its evidence for any other.

    Exit codes are the command's own (128+N when a signal N ended it), and 124 when --on-hang stop ended it, 125 when
    Holter could not start it, 126 when it can't be executed, 127 when it is not found.
    """
    if heal not in (None, "safe", "all"):
        raise UsageError(f"--heal={heal} is not known", "Say --heal or --heal=all, and -- before the command")
    if not words:
        raise UsageError("there is no command to run", "Say which: holter run -- python train.py")
    from holter.recorder.launch import Launch

    def quietly(_what: object) -> None:
        pass

    def show(folder: Path) -> None:
        from holter.commands._show import show_on_stderr  # after the run: it must not delay the start

        show_on_stderr(folder)

    def foresight() -> Foresee:
        from holter.diagnosis.foresight import Foresight  # while the command starts: it must not delay it

        return Foresight(_lines_of).observe

    tell = quietly if quiet else tell_on_stderr
    launch = Launch(list(words), name=name, on_hang=on_hang, heal=heal, tell=tell, foresight=foresight)
    sys.exit(launch.run(quietly if quiet else show))


def _lines_of(path: str) -> list[str]:
    from holter.record.sources import read_source

    return (read_source(path) or "").splitlines()
