"""A checkpoint that could not be written: how much room there was at that moment, which a reading a second may miss."""

import os


def tell(agent, target):
    """Say what is free where `target`, a path or an open file, was to be written."""
    path = getattr(target, "name", target)
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    folder = os.path.dirname(os.path.abspath(os.fsdecode(path)))
    room = os.statvfs(folder)
    agent.say(
        "save-failed", path=folder, free=room.f_bavail * room.f_frsize, total=room.f_blocks * room.f_frsize,
        inodes_free=room.f_favail,
    )  # fmt: skip
