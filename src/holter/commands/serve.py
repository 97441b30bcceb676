"""holter serve: all runs as a web page, live."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from holter.errors import HolterError, UsageError
from holter.record import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from holter.views.web.server import Server

_PORT = 8642


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"By default {_PORT}, or any free one where that is taken.")
def command(host: str, port: int | None) -> None:
    """Show all runs as a web page, live, until Ctrl-C.

    Only this machine can reach it, and only with the token in the address that is printed. With --host 0.0.0.0 others
    can reach it too, if they have the token; it travels unencrypted, so a tunnel is better: ssh -L 8642:localhost:8642.
    No training is ever touched by it; tags, notes and the deletion of records are all that can be changed.

    The token is new at every start, unless HOLTER_TOKEN has one of 16 characters or more. Numbers for Prometheus are
    at /metrics, with the token as a bearer's.
    """
    from holter.commands._runs import Runs
    from holter.own_process import own_process
    from holter.views.web.auth import Auth
    from holter.views.web.page import has_charts
    from holter.views.web.reading import Reading
    from holter.views.web.server import Server

    reading = Reading(own_process("holter.figures.record_worker"))
    server = _listening(lambda at: Server((host, at), Runs(), reading, Auth(host, _token())), host, port)
    server.watcher.start()
    try:
        if host not in ("127.0.0.1", "localhost", "::1"):
            click.echo(
                f"holter: on {host}: whoever has this address with its token can read, tag and delete every run",
                err=True,
            )
        if not has_charts():
            click.echo("holter: no charts: this build of Holter has no chart library", err=True)
        click.echo("holter: every run, live, until Ctrl-C; open this address in a browser", err=True)
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        click.echo(f"http://{shown}:{server.server_address[1]}/?token={server.auth.token}")
        server.serve_forever(poll_interval=2.0)
    except KeyboardInterrupt:
        pass
    finally:
        server.watcher.stop()
        reading.close()


def _token() -> str:
    """One that stays the same, where it was asked for: a program that collects numbers can't read a terminal."""
    token = os.environ.get(environment.TOKEN, "")
    if token and not re.fullmatch(r"[\w.~-]{16,}", token, re.ASCII):
        raise UsageError("HOLTER_TOKEN is not a valid token", "It takes 16 or more letters, digits, or any of - _ . ~")
    return token


def _listening(make: Callable[[int], Server], host: str, port: int | None) -> Server:
    for at in [port] if port is not None else [_PORT, 0]:
        try:
            return make(at)
        except OSError as error:
            failed = error
    raise HolterError(f"{host}:{port or _PORT} can't be listened on: {failed.strerror}", "Choose another with: --port")
