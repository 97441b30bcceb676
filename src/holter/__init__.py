"""Holter: a Holter monitor for model training."""

from __future__ import annotations

from holter.beacon.api import resumable, step, track

__all__ = ["resumable", "step", "track"]
__version__ = "0.1.0"
