"""How long `holter check` takes for a thousand files: `python bench/check.py [FOLDER]`.

Without a folder it reads copies of the project's own patients and modules; with one, the first thousand scripts of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MANY = 1000


def main() -> None:
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    roots = [given] if given is not None else [ROOT / "tests" / "patients", ROOT / "tests" / "check", ROOT / "src"]
    found = [path for root in roots for path in sorted(root.rglob("*.py")) if path.is_file()]
    with tempfile.TemporaryDirectory() as folder:
        size = lines = 0
        for number in range(MANY):
            text = found[number % len(found)].read_bytes()
            (Path(folder) / f"file_{number:04d}.py").write_bytes(text)
            size, lines = size + len(text), lines + text.count(b"\n")
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "holter", "check", folder], capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - start
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{MANY:,} files, {lines:,} lines, {size / 1e6:.1f} MB: {took:.1f} s on {cores} cores")
    print(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
