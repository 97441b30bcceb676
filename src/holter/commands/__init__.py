"""The command line: one file per subcommand, imported when it is called."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from typing import Any

import click

from holter import __version__
from holter.errors import HolterError


class _OneFilePerCommand(click.Group):
    """Finds `holter NAME` in commands/NAME.py as `NAME.command`; adding one adds a file."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        order = (
            "run", "why", "autopsy", "ls", "tag", "note", "rename", "rm", "prune", "attach", "check", "plan", "env",
            "watch", "serve", "report", "demo",
        )  # fmt: skip
        names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
        return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"holter.commands.{name}")
        found: click.Command = module.command
        return found


@click.group(cls=_OneFilePerCommand, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="holter")
def cli() -> None:
    """Say why a training run stopped, stalled or slowed.

    \b
    holter run -- python train.py     record a run; a verdict at its end
    holter why                        the verdict on the last run
    """


def main(arguments: list[str] | None = None) -> Any:
    """The entry point: our own errors, and the system's, become one line and an exit code, never a stack trace."""
    try:
        try:
            return cli(arguments, prog_name="holter")
        finally:
            if sys.stdout is not None:  # as it is where stdout was closed before we came
                sys.stdout.flush()  # a full disk shows itself only now
    except HolterError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        # What is still in the buffer can't be written either: the interpreter would fail once more, with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        where = error.filename or "the output can't be written"
        _fail(f"{where}: {error.strerror or error}", 1)


def _fail(text: str, exit_code: int) -> None:
    from holter.commands._tell import tell_on_stderr
    from holter.views.plain import clean

    tell_on_stderr(clean(text))  # it may quote what a record or a folder is called
    sys.exit(exit_code)
