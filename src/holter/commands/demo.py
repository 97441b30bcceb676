"""holter demo: a small sick run of our own, recorded and explained."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click


@click.command()
def command() -> None:
    """Record a small run that falls ill, and say why: needs no framework, takes about half a minute."""
    import holter
    from holter.commands._show import show_on_stderr
    from holter.commands._tell import tell_on_stderr
    from holter.recorder.launch.launch import Launch

    click.echo("A small training run in pure Python; it will stop making progress, as runs do at 3 a.m.\n", err=True)
    click.echo("$ holter run --on-hang stop -- python train.py", err=True)
    with tempfile.TemporaryDirectory(prefix="holter-demo-") as folder:
        # As a script of the user's: what lies among the installed libraries is never the culprit.
        script = str(shutil.copyfile(Path(holter.__file__).with_name("demo_run.py"), Path(folder, "train.py")))
        Launch([sys.executable, script], name="demo", on_hang="stop", report=tell_on_stderr).run(show_on_stderr)
