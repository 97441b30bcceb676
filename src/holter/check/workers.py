"""Checks many files: what did not change is known, and the rest is shared among as many processes as pay."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from holter.check.cache import Cache, Stamp, content_of, stamp_of
from holter.check.problem import Checked, Unread
from holter.check.settings import Settings
from holter.check.source import CanNotRead, parse_bytes, read_file

if TYPE_CHECKING:
    from pathlib import Path

# Below this many files a second process takes longer to start, and a cache longer to read, than they save.
PAYS = 64
_AT_ONCE = 8

# A file, the content that it had when it was last checked, the settings, and whether to fix it.
Task = tuple[str, str, Settings, bool]
# How the file was read, and what was found: None where the content is the one that is known.
Done = tuple[Stamp | None, Checked | None]


def check_files(
    files: Iterable[str], settings: Settings, *, fix: bool = False, cache_in: Path | None = None
) -> Checked:
    """Check some files; the order of the findings is that of the files."""
    paths = list(files)
    # What is fixed is not only looked at: each file is read.
    cache = Cache.open(cache_in, settings) if cache_in is not None and len(paths) >= PAYS and not fix else None
    found = {path: known for path in paths if cache is not None and (known := cache.find(path)) is not None}
    tasks = [
        (path, cache.content(path) if cache is not None else "", settings, fix) for path in paths if path not in found
    ]
    with closing(_each(tasks)) as results:
        for (path, *_), (stamp, checked) in zip(tasks, results, strict=True):
            if cache is not None and stamp is not None:
                found[path] = cache.same(path, stamp) if checked is None else cache.keep(path, stamp, checked)
            elif checked is not None:
                found[path] = checked
    if cache is not None:
        cache.save()
    whole = Checked()
    for path in paths:
        whole.add(found[path])
    return whole


def _each(tasks: list[Task]) -> Generator[Done, None, None]:
    workers = min(_cores(), len(tasks) // _AT_ONCE)
    if not tasks:
        return
    from holter.check.rule import find_rules

    find_rules()
    if len(tasks) < PAYS or workers < 2:
        enabled = gc.isenabled()
        gc.disable()
        try:
            yield from map(_check, tasks)
        finally:
            if enabled:
                gc.enable()
        return
    from concurrent.futures import ProcessPoolExecutor

    # Forked where that is quick and safe: nothing of ours runs threads.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods and os.name == "posix" else None)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin) as pool:
        try:
            # Ctrl-C goes to workers too, and is for us alone: they are started with it held back, and keep it so.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            # Not by `map`, which cancels what is still to come: the pool stumbles over that when its workers are gone.
            several = [pool.submit(_check_all, tasks[at : at + _AT_ONCE]) for at in range(0, len(tasks), _AT_ONCE)]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            for one in several:
                yield from one.result()
        except (KeyboardInterrupt, GeneratorExit):
            for worker in multiprocessing.active_children():
                worker.terminate()  # or they would go on with what they were given
            raise


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _begin() -> None:
    """Set up a worker: a tree of a million nodes is no garbage, and goes when its file is done."""
    gc.freeze()
    gc.disable()


def _check_all(tasks: list[Task]) -> list[Done]:
    return [_check(task) for task in tasks]


def _check(task: Task) -> Done:
    from holter.check.engine import check_source

    path, known, settings, fix = task
    stamp = None
    try:
        raw, about = read_file(path)
        stamp = Stamp(stamp_of(about), content_of(raw))
        if stamp.content == known:
            return stamp, None
        return stamp, check_source(parse_bytes(path, raw), settings, fix=fix)
    except CanNotRead as error:
        return stamp, Checked(1, [], [Unread(path, str(error))])
