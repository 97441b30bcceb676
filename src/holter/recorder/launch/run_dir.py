"""The folder that agents write into: local memory where there is some, since a disk could make a training step wait."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import holter
from holter.record import environment
from holter.record.gather import gather
from holter.record.reader import start_time
from holter.recorder.loop.processes import lives

OWNER = "owner.json"
SHARED_MEMORY = "/dev/shm"
_MIN_BYTES = 8 << 20
_DAY = 86400.0
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# How many of its last collectives each rank keeps, in PyTorch's Flight Recorder: reading them takes it 2 ms. Without
# ranks nothing reads the variable. Its older name makes NCCL of older releases do more, and is left alone.
_FLIGHT_RECORDER, _COLLECTIVES_KEPT = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), "256"
INJECT = Path(holter.__file__).resolve().parent / "agent" / "inject"


def make() -> Path | None:
    """A private folder: in shared memory when 8 MB are free there, else in the temporary folder, else None."""
    for base in bases():
        try:
            free = os.statvfs(base)
            if free.f_bavail * free.f_frsize >= _MIN_BYTES:
                return Path(tempfile.mkdtemp(prefix=f"holter-{os.getuid()}-", dir=base))
        except OSError:
            continue
    return None


def bases() -> list[str]:
    """The folders that are open to all: shared memory, and the temporary folder where there is one."""
    try:
        return [SHARED_MEMORY, tempfile.gettempdir()]
    except OSError:  # a read-only root, and no temporary folder was mounted
        return [SHARED_MEMORY]


def note_owner(agent_dir: Path, keeper: int, folder: Path | None) -> None:
    """Write down whose folder this is, so that it can be cleared away if all of them are killed at once."""
    owner = {"keeper": keeper, "start": start_time(keeper), "record": str(folder) if folder else None}
    try:
        (agent_dir / OWNER).write_text(json.dumps(owner))
    except OSError:
        pass


def clear_abandoned() -> None:
    """Bring home what runs left behind whose keeper is gone too; nothing of a living run is touched."""
    for base in set(bases()):
        for agent_dir in Path(base).glob(f"holter-{os.getuid()}-*"):
            try:
                if not _ours(agent_dir):
                    continue
                if not (agent_dir / OWNER).exists():
                    _clear_ownerless(agent_dir)
                    continue
                text = (agent_dir / OWNER).read_text()
                owner = json.loads(text)
                if _in_use(agent_dir, int(owner["keeper"]), owner["start"]):
                    continue
                (agent_dir / OWNER).unlink()  # whoever comes second fails here, and leaves it to the first
                record = owner.get("record")
            except (OSError, ValueError, KeyError, TypeError, OverflowError):
                continue
            if not record or not Path(record).is_dir():
                shutil.rmtree(agent_dir, ignore_errors=True)
            elif not gather(agent_dir, Path(record)):
                (agent_dir / OWNER).write_text(text)  # the disk is full: the next run tries again


def _ours(agent_dir: Path) -> bool:
    """These places are open to all: a folder or a link that someone else put there is none of ours."""
    facts = agent_dir.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()


def _clear_ownerless(agent_dir: Path) -> None:
    """One whose owner was never written down, since its run was killed while it began: gone after a day."""
    if time.time() - agent_dir.lstat().st_mtime > _DAY and not _agents_live(agent_dir):
        shutil.rmtree(agent_dir, ignore_errors=True)


def _agents_live(agent_dir: Path) -> bool:
    pids = {path.name.partition(".")[0] for path in agent_dir.iterdir()}
    return any(lives(int(pid)) for pid in pids if pid.isdigit())


def _in_use(agent_dir: Path, keeper: int, start: int | None) -> bool:
    """True while the keeper lives, or an agent that outlived it; without start times its number decides."""
    if lives(keeper) and start_time(keeper) == start:
        return True
    return _agents_live(agent_dir)


def command_environ(agent_dir: Path | None, run_id: str, base: Mapping[str, str], heal: bool = False) -> dict[str, str]:
    """The command's environment: the user's own, with the agent in front of PYTHONPATH."""
    environ = dict(base)
    if agent_dir is None:
        return environ
    path = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = f"{INJECT}{os.pathsep}{path}" if path else str(INJECT)
    environ[environment.AGENT_DIR] = str(agent_dir)
    environ[environment.RUN] = run_id
    environ.pop(environment.PLAN, None)
    if not any(name in environ for name in _FLIGHT_RECORDER):
        environ[_FLIGHT_RECORDER[0]] = _COLLECTIVES_KEPT
    environ.pop(environment.HEAL, None)  # a run within a healed one is healed when it is itself asked to be
    if heal:
        environ[environment.HEAL] = "1"
        if os.path.exists("/dev/nvidiactl") and not any(name in environ for name in ALLOCATOR):
            # Segments that can grow leave no holes between them; it has to be known before the first allocation.
            # Newer releases warn of the older name where only that is set.
            environ.update(dict.fromkeys(ALLOCATOR, "expandable_segments:True"))
    return environ
