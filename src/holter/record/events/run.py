"""What `record.json` says of a run: the facts of its start."""

from __future__ import annotations

from typing import Any

from holter.record.events.rows import Job
from holter.record.events.schema import Row, means, schema


@schema
class RunFacts(Row):
    """What is known at the start."""

    schema: int | None = means("of the record: 1")
    id: str = ""
    name: str = ""
    command: Any = means("list of words, secrets masked")
    cwd: str = means("null when it was removed")
    host: str = ""
    platform: str = ""
    started: float | None = means("wall-clock seconds")
    mono: float | None = means("monotonic seconds at the same instant")
    boot_id: str = ""
    holter: str = means("its version")
    uid: int | None = None
    recorder_pid: int | None = None
    recorder_start: int | None = means("in the kernel's ticks since boot")
    cpus: int | None = None
    memory_total: float | None = means("bytes of the machine")
    env: Any = means("a named list of harmless variables")
    guest_dir: str = means("where the agents write")
    on_hang: str = means("`report`, `stop`, `restart`")
    heal: str = means("`safe` under `--heal`, otherwise null; older records have `all`, too")
    attempt: int | None = means("of a run that was started again, like the next one")
    restart_of: str = means("the run before")
    job: Job = means("of a Holter that a launcher started once for each rank")
    attached: int | None = means("a pid, for `holter attach`")

    @property
    def words(self) -> list[str]:
        """The words of the command, of any length."""
        known = self.command if isinstance(self.command, list) else [self.command]
        return [word for word in known if isinstance(word, str)]

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that were noted."""
        known = self.env if isinstance(self.env, dict) else {}
        return {str(name): value for name, value in known.items() if isinstance(value, str)}
