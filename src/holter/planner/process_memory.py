"""What this process holds, and the most that it held: Linux keeps a mark that can be set anew."""

from __future__ import annotations

from ..facts.host_memory import held, highest, status, trim

__all__ = ["held", "highest", "of_files", "resident"]


def resident() -> int:
    """Resident bytes now, without what the C library keeps for later; no mark is set."""
    trim()
    return status("VmRSS")


def of_files() -> int:
    """Resident pages of files: libraries. A forked child begins with next to none of them."""
    return status("RssFile")
