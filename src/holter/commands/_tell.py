"""One line to the user while a run is on."""

from __future__ import annotations

import os


def tell_on_stderr(text: str) -> None:
    """One line while the run is on; the cursor may stand in the middle of a progress bar."""
    start = "\r\x1b[K" if os.isatty(2) else ""
    os.write(2, f"{start}holter: {text}\n".encode("utf-8", "replace"))
