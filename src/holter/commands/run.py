"""holter run: start a command, record it, and say how and why it ended."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from holter.errors import UsageError


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
@click.option("--quiet", "-q", is_flag=True, help="Say nothing, whatever happens; the record is written all the same.")
@click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(name: str | None, on_hang: str, quiet: bool, words: tuple[str, ...]) -> None:
    """Run COMMAND and record it.

    The command runs as it would without Holter: the same output, signals and exit code. At the end a verdict goes to
    stderr: one line for a healthy run, the cause with its evidence for any other.

    Exit codes are the command's own (128+N when a signal N ended it), and 124 when --on-hang stop ended it, 125 when
    Holter could not start it, 126 when it can't be executed, 127 when it is not found.
    """
    if not words:
        raise UsageError("there is no command to run", "Say which: holter run -- python train.py")
    from holter.recorder.launch import Launch

    sys.exit(
        Launch(list(words), name=name, on_hang=on_hang, tell=_silent if quiet else _tell).run(
            _silent_verdict if quiet else _verdict
        )
    )


def _tell(text: str) -> None:
    # On a line of its own: the cursor may stand in the middle of a progress bar.
    start = "\r\x1b[K" if os.isatty(2) else ""
    os.write(2, f"{start}holter: {text}\n".encode("utf-8", "replace"))


def _silent(_text: str) -> None:
    pass


def _verdict(folder: Any) -> None:
    from holter.diagnosis.doctor import verdict
    from holter.record.reader import open_record
    from holter.views.text import write_verdict

    record = open_record(folder)
    write_verdict(verdict(record), record, sys.stderr)


def _silent_verdict(_folder: Any) -> None:
    pass
