"""holter attach: a verdict on a process that already hangs."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("pid", type=int)
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON, schema 2.")
def command(pid: int, as_json: bool) -> None:
    """Watch the process PID for a few seconds and say where it is stuck.

    It need not have been started under Holter, and is not disturbed. Exits with 0 when a verdict was given, 5 when
    there is no such process, 6 when it belongs to another user.
    """
    from holter.commands._show import show
    from holter.record import place
    from holter.recorder.loop.attach import attach, check

    check(pid)
    folder = place.new_run(place.home())
    attach(pid, folder)
    show(folder, sys.stdout, as_json=as_json)
