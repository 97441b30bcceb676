"""holter autopsy: why a run died that Holter did not record."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import click

from holter.errors import UsageError

_SCRIPTS = (".py", ".ipynb")


@click.command()
@click.argument("log", required=False)
@click.argument("script", required=False)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, schema 1.")
def command(log: str | None, script: str | None, as_json: bool) -> None:
    """Say why a run died that was not recorded, from its LOG, the kernel's log and its SCRIPT.

    LOG is the file that holds its output, or - for stdin; by default the newest of nohup.out, slurm-*.out, *.log,
    *.out and *.err in this folder. Of a large log only its ends and what stands around its errors are read. SCRIPT is
    read for known traps, never run.

    What a text proves is established; what led there is a hypothesis, with what speaks against it and the command that
    would settle it. Exits with 0 whenever it gave an answer, 2 when a file can't be read.
    """
    from holter.autopsy.examine import autopsy
    from holter.autopsy.log_file import newest_log
    from holter.figures.document import mask
    from holter.views.autopsy import write_autopsy

    if log is not None and script is None and log.endswith(_SCRIPTS):
        log, script = None, log
    if log is None:
        found = newest_log(Path.cwd())
        if found is None:
            raise UsageError("there is no log in this folder", "Name it: holter autopsy train.log train.py")
        log = found.name
    document = mask(autopsy(log, script).as_json())
    if as_json:
        print(json.dumps(document, indent=1))
        return
    width = min(100, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80
    write_autopsy(document, sys.stdout, width=width)
