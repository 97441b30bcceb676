"""Makes the builder importable from the tests of the views."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "diagnosis"))
