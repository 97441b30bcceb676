"""What `holter watch` costs on a run that is on: `python bench/watch.py [SECONDS]`.

A run that has been on for half an hour gets a sample and a window of steps each second, as bench/serve.py writes them.
Prints CPU and memory of the screen and of the process that reads records, on the run and on the list.
"""

from __future__ import annotations

import os
import pty
import sys
import tempfile
import threading
import time
from pathlib import Path

from serve import cpu, grow, make, memory


def drain(master: int) -> None:
    """A terminal that takes all it is sent."""
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        pass


def measured(home: Path, arguments: list[str], seconds: float) -> str:
    """Start the screen in a terminal of its own, let it settle, and read off what it used."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ |= {"HOLTER_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"}
        os.execv(sys.executable, [sys.executable, "-m", "holter", "watch", *arguments])
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    time.sleep(8)

    before, begun = cpu(pid), time.monotonic()
    time.sleep(seconds)
    share, held = 100 * (cpu(pid) - before) / (time.monotonic() - begun), memory(pid)
    os.write(master, b"q")
    left = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"{share:.1f} % of a core, {held:.0f} MB; left with {left}"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        stop = threading.Event()
        on = [make(home, 1800, ends=False) for _ in range(2)]
        threading.Thread(target=grow, args=(on, stop), daemon=True).start()
        print("the run: ", measured(home, ["r-0001"], seconds))
        print("the list:", measured(home, [], seconds))
        stop.set()


if __name__ == "__main__":
    main()
