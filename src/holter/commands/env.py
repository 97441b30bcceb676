"""holter env: what this machine, container and interpreter give a training."""

from __future__ import annotations

import json
import shutil
import sys

import click


@click.command()
@click.option("--python", metavar="PATH", help="The interpreter that would run the training; by default `python`.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, schema 1.")
def command(python: str | None, as_json: bool) -> None:
    """Show what this machine, container and interpreter give a training, and what Holter can see of one here.

    Made to be pasted into an issue: of the environment only a short list of harmless variables is shown, and no name of
    a user. PyTorch and TensorFlow are asked for their devices in processes of their own, for 60 seconds at most.

    Exits with 0, also where something could not be read: then it says why. 2 when --python is no program.
    """
    from holter.figures.document import mask
    from holter.machine.look import look
    from holter.views.machine import write_machine

    found = mask(look(python))
    if as_json:
        print(json.dumps(found, indent=1))
        return
    write_machine(found, sys.stdout, width=shutil.get_terminal_size().columns if sys.stdout.isatty() else 100)
