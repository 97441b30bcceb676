"""holter run: start a command, record it, and say how and why it ended."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holter.commands._tell import tell_on_stderr
from holter.errors import EXIT_DOOMED, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holter.recorder.launch.launch import Next
    from holter.recorder.loop.forecast_hook import Forecast
    from holter.remedies.restart import Restarts


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option("--name", metavar="NAME", help="A name for the run, to find it again by.")
@click.option(
    "--on-hang",
    type=click.Choice(["report", "stop", "restart"]),
    default="report",
    show_default=True,
    help="What to do when the run makes no progress: say so, or capture the stacks, end it and exit with 124, or, with "
    "--heal, start it again from its last state.",
)
@click.option(
    "--heal",
    is_flag=True,
    help="Keep the run going: split a batch that does not fit, with the same update; start a run that ran out of "
    "memory again from its last state.",
)
@click.option(
    "--resume-args",
    metavar="WORDS",
    help='With --heal: words that make the command go on from its own checkpoint, such as "--resume last.pt"; they are '
    "added to it when it is started again.",
)
@click.option(
    "--notify",
    is_flag=False,
    flag_value="desktop",
    metavar="[=URL]",
    help="Also show what is found on the desktop, or send it to URL, each as one POST of JSON; slack+URL and ntfy+URL "
    "in the form of these services.",
)
@click.option(
    "--export",
    "exports",
    multiple=True,
    metavar="TOOL[=WHERE]",
    help="Also send numbers and findings to a tool: tensorboard, mlflow, wandb or otel. May be given several times.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing, whatever happens; the record is written all the same.")
@click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    name: str | None,
    on_hang: str,
    heal: bool,
    resume_args: str | None,
    notify: str | None,
    exports: tuple[str, ...],
    quiet: bool,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND and record it.

    The command runs as it would without Holter: the same output, signals and exit code. At the end a verdict goes to
    stderr: one line for a healthy run, the cause with its evidence for any other.

    Exit codes are the command's own (128+N when a signal N ended it), and 123 when --heal started it again three times
    and it came no further, 124 when --on-hang stop ended it, 125 when Holter could not start it, 126 when it can't be
    executed, 127 when it is not found.
    """
    from holter.recorder.launch import streams

    streams.hold_closed()  # before any file of ours is opened
    if not heal and (on_hang == "restart" or resume_args is not None):
        asked = "--on-hang restart" if on_hang == "restart" else "--resume-args"
        raise UsageError(f"{asked} does nothing without --heal", f"Say: holter run --heal {asked} ... -- COMMAND")
    if not words:
        raise UsageError("no command is given", "Say which: holter run -- python train.py")
    from holter.recorder.launch.launch import Launch

    def quietly(_what: object) -> None:
        pass

    def show(folder: Path) -> None:
        from holter.commands._show import show_on_stderr  # after the run: it must not delay the start
        from holter.commands._workflow import in_workflow, show_in_workflow

        show_on_stderr(folder)
        if in_workflow():
            show_in_workflow(folder)

    def forecaster() -> Forecast:
        from holter.diagnosis.forecast.engine import ForecastEngine  # while the command starts: it must not delay it

        return ForecastEngine(_lines_of).observe

    report = on_stderr = quietly if quiet else tell_on_stderr
    over: Callable[[Path], None] = quietly if quiet else show
    if notify is not None:
        from holter.commands._notify import Notify

        notices = Notify(notify, name, words, on_stderr)

        def report(text: str) -> None:
            on_stderr(text)
            notices.reported(text)

        def over(folder: Path) -> None:
            if not quiet:
                show(folder)
            notices.ended(folder)

    exporting = None
    if exports:
        from holter.commands._export import Exports

        exporting = Exports(exports, on_stderr, quiet=quiet)
        over = exporting.around(over)

    launch = Launch(
        list(words), name=name, on_hang=on_hang, heal=heal, report=report, forecaster=forecaster,
        healer=Healer(on_hang, resume_args) if heal else None, resume_args=_split(resume_args),
        lent=exporting.environ if exporting is not None else None,
        began=exporting.began if exporting is not None else None,
    )  # fmt: skip
    exit_code = launch.run(over)
    _keep_the_disk_free(on_stderr)
    sys.exit(exit_code)


def _keep_the_disk_free(report: Callable[[str], None]) -> None:
    from holter.record import place
    from holter.record.kept import keep_the_disk_free
    from holter.units import count, size

    with contextlib.suppress(OSError):
        gone = keep_the_disk_free(place.home())
        if gone:
            freed = f"{count(len(gone))}, {size(sum(run.taken for run in gone))}"
            report(f"the oldest records were deleted to keep the disk free ({freed}). Choose with: holter prune")


class Healer:
    """Asks the doctor about an attempt that has ended, and the remedies what the next one is to change."""

    def __init__(self, on_hang: str, resume_args: str | None) -> None:
        self.on_hang = on_hang
        self.resume_args = resume_args is not None
        self.restarts: Restarts | None = None

    def __call__(self, folder: Path) -> Next:
        from holter.diagnosis.core.doctor import verdict
        from holter.record.reader import open_record
        from holter.recorder.launch.launch import Next
        from holter.remedies.restart import Restarts, restart_fields

        self.restarts = self.restarts or Restarts(self.resume_args)
        record = open_record(folder)
        found = verdict(record)
        if found.ending.kind == "hung" and self.on_hang != "restart":
            return Next()
        ruling = self.restarts.after(record, found)
        if ruling.remedy is not None:
            return Next(restart_fields(ruling, found, resumes=self.restarts.resumes), ruling.remedy.environ)
        return Next(declined=ruling.declined, exit_code=EXIT_DOOMED if ruling.doomed else None)


def _split(resume_args: str | None) -> list[str]:
    if not resume_args:
        return []
    import shlex

    try:
        return shlex.split(resume_args)
    except ValueError as error:
        raise UsageError(f"--resume-args is not valid: {error}", "Quote it as for a shell") from None


def _lines_of(path: str) -> list[str]:
    from holter.record.sources import read_source

    return (read_source(path) or "").splitlines()
