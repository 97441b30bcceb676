"""Makes the builder importable from every test of this folder, and from the views' tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
