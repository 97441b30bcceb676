"""What tests of the check share with those of records: a disk of a few pages."""

from __future__ import annotations

from tests.record.conftest import small_disk

__all__ = ["small_disk"]
