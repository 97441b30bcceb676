"""What a test's child processes import: looked for without importing it here, which takes seconds for a framework."""

from __future__ import annotations

import importlib.util

import pytest


def needs(*names: str) -> None:
    """Skip the test, or the module that says so at its top, where one of these packages is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
