"""This platform's modules among the probes and beside us, for what is no probe itself."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from holter.probes import SUFFIXES


def here(name: str, package: str = "probes") -> Any:
    """The module `name` with this platform's suffix, or None where the platform has none."""
    suffix = SUFFIXES.get(sys.platform)
    try:
        return importlib.import_module(f"holter.{package}.{name}{suffix}") if suffix else None
    except ImportError:
        return None
