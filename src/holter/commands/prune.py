"""holter prune: delete old records."""

from __future__ import annotations

import sys

import click

from holter.commands._amounts import DiskSize, Moment


@click.command()
@click.option("--older-than", "before", type=Moment(), metavar="TIME", help="Runs that ended before: 30d, 12h, a date.")
@click.option("--max-size", type=DiskSize(), metavar="SIZE", help="The oldest, until the rest takes no more: 2GB.")
@click.option("--keep-failed", is_flag=True, help="Keep runs that failed or in which something was found.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
def command(before: float | None, max_size: int | None, keep_failed: bool, dry_run: bool) -> None:
    """Delete old records. Files of the training itself are not touched, and no run that is still being recorded.

    With --older-than and --max-size, a run goes for either reason. By itself Holter deletes the oldest records once a
    day, as far as all of them take more than 5 GB or a tenth of the disk, and nothing of the last day.
    """
    from holter.errors import UsageError
    from holter.record import place
    from holter.record.kept import Kept, clear_half_deleted, delete, kept_runs, over_the_limit
    from holter.units import count, size

    if before is None and max_size is None:
        raise UsageError("nothing says which runs to delete", "Say for example: holter prune --older-than 30d")

    def ended_well(run: Kept) -> bool:
        from holter.diagnosis.core.doctor import verdict
        from holter.record.reader import open_record

        try:
            return verdict(open_record(run.folder)).healthy
        except Exception:  # a record that nobody can judge is no run that ended well
            return False

    base = place.home()
    if not dry_run:
        clear_half_deleted(base)
    runs = kept_runs(base)
    old = {run.id for run in runs if before is not None and run.written < before}
    rest = [run for run in runs if run.id not in old or (keep_failed and not ended_well(run))]
    old -= {run.id for run in rest}
    if max_size is not None:
        old |= {run.id for run in over_the_limit(rest, max_size, may_go=lambda run: not keep_failed or ended_well(run))}
    gone = [run for run in runs if run.id in old and not run.live]
    failed = 0
    for run in gone:
        try:
            if not dry_run:
                delete(run.folder)
        except FileNotFoundError:  # somebody else was faster
            continue
        except OSError as error:
            failed += 1
            print(f"holter: {run.id} could not be deleted: {error.strerror}", file=sys.stderr)
            continue
        print(f"{run.id} {'would be deleted' if dry_run else 'deleted'} ({size(run.taken)})")
    kept = sum(run.taken for run in runs) - sum(run.taken for run in gone)
    print(f"{count(len(gone) - failed)} of {count(len(runs))} runs; the rest takes {size(kept)}")
    sys.exit(1 if failed else 0)
