"""What is said on stderr: whatever has become of it, saying it never fails, since the run's exit code matters more."""

from __future__ import annotations

import io
import os
import sys

from holter.recorder.launch.streams import writable

_MAX_WAIT_S = 1.0  # seconds, with a reader that takes nothing


class Stderr(io.StringIO):
    """A text for stderr, written at once and past Python's own buffer.

    What stays in that one, since stderr is full or its terminal has hung up, would make the interpreter exit with 120.
    """

    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return os.isatty(2)

    def send(self) -> None:
        data = self.getvalue().encode(self.encoding, "replace")
        while data:
            try:
                data = data[os.write(2, data) :]
            except BlockingIOError:
                if not writable(2, _MAX_WAIT_S):
                    return
            except OSError:
                return


def tell_on_stderr(text: str) -> None:
    """One line while the run is on; the cursor may stand in the middle of a progress bar."""
    line = Stderr()
    line.write("\r\x1b[K" if line.isatty() else "")
    line.write(f"holter: {text}\n")
    line.send()
