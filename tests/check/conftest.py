"""What tests of the check share: a disk of a few pages, as those of records have it, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record.conftest import small_disk

__all__ = ["small_disk"]


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, for this test alone."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home
