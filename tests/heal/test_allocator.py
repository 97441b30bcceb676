"""The allocator that leaves no holes is set before a run starts, where there is a device and nobody chose another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holter.recorder.launch import run_dir

HOLELESS = dict.fromkeys(run_dir.ALLOCATOR, "expandable_segments:True")


@pytest.mark.parametrize(
    ("device", "heal", "own", "expected"),
    [
        (True, True, {}, HOLELESS),
        (True, True, {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}),
        (True, True, {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}),
        (True, False, {}, {}),
        (False, True, {}, {}),
    ],
    ids=["set", "the user's own", "under the older name", "without --heal", "without a device"],
)
def test_it_is_set_where_it_is_known_to_be_safe(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: bool,
    heal: bool,
    own: dict[str, str],
    expected: dict[str, str],
) -> None:
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: device if path == "/dev/nvidiactl" else exists(path))
    found = run_dir.command_environ(tmp_path, "r-0001", own, heal)

    assert {name: found[name] for name in run_dir.ALLOCATOR if name in found} == expected
