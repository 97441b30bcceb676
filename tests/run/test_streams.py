"""The command's output and input are what they were without Holter."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.conftest import HOLTER, Holter

NOISE = r"""
import os, random, sys
random.seed(7)
for _ in range(200):
    os.write(1, random.randbytes(random.randrange(1, 5000)))
    os.write(2, random.randbytes(random.randrange(1, 500)))
"""


def test_stdout_on_a_pipe_is_byte_identical(holter: Holter) -> None:
    """Half a megabyte of any bytes at all comes out as it went in."""
    script = holter.script(NOISE)
    plain = subprocess.run([sys.executable, script], capture_output=True, check=True)

    watched = holter.run(sys.executable, script)

    assert watched.stdout == plain.stdout
    assert watched.stderr.startswith(plain.stderr)
    assert watched.returncode == 0


def test_stdout_and_stderr_that_were_one_stay_one_in_order(holter: Holter) -> None:
    """With 2>&1 into one pipe the lines keep their order."""
    script = holter.script(
        """
        import os
        for i in range(2000):
            os.write(1 + i % 2, b"%d\\n" % i)
        """
    )

    done = holter("run", "-q", "--", sys.executable, script, stderr=subprocess.STDOUT)

    assert done.stdout.split() == [b"%d" % i for i in range(2000)]


def test_output_arrives_at_once(holter: Holter) -> None:
    """What the command writes is seen while it still runs, not when it ends."""
    script = holter.script("import os, sys; os.write(1, b'ready'); sys.stdin.read()")
    process = holter.start("run", "--", sys.executable, script)
    assert process.stdout is not None
    assert process.stdin is not None

    assert os.read(process.stdout.fileno(), 100) == b"ready"
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(600) == 0


def test_stdin_reaches_the_command(holter: Holter) -> None:
    """A pipe into holter is a pipe into the command."""
    process = holter.start("run", "-q", "--", "cat")

    out, _ = process.communicate(b"through and through", timeout=600)

    assert out == b"through and through"


def test_a_reader_that_leaves_is_met_as_without_holter(holter: Holter) -> None:
    """`holter run -- yes | head -1` ends, and the command died of the broken pipe."""
    line = f"{HOLTER[0]} -m holter run -- yes | head -1"

    done = subprocess.run(line, shell=True, env=holter.environ(), capture_output=True, timeout=600, check=False)

    assert done.stdout == b"y\n"
    assert holter.events("exited")[0]["signal"] == "SIGPIPE"


def test_a_file_gets_the_bytes_and_the_record_gets_its_end(holter: Holter) -> None:
    """With output into a file the file is written by the command itself, and its tail is kept all the same."""
    script = holter.script("print('a' * 300000); print('the last line')")
    target = holter.folder / "log"
    with open(target, "wb") as log:
        assert holter("run", "-q", "--", sys.executable, script, stdout=log, stderr=log).returncode == 0

    assert target.read_bytes() == b"a" * 300000 + b"\nthe last line\n"
    assert _tail(holter.record()).endswith(b"the last line\n")


def test_the_last_256_kb_of_output_are_kept(holter: Holter) -> None:
    """The record holds the end of the output and not more than it should."""
    script = holter.script("import os\nfor i in range(60000): os.write(1, b'%09d\\n' % i)")

    holter.run(sys.executable, script)

    kept = _tail(holter.record())
    assert len(kept) == 256 * 1024
    assert kept.endswith(b"000059999\n")


def _tail(record: Path) -> bytes:
    from holter.record.tail import read_tail

    return read_tail(record / "output.tail")


def in_terminal(holter: Holter, *words: str, size: tuple[int, int] = (30, 100)) -> tuple[str, int]:
    """Run words in a terminal of their own; returns what the screen was sent and the exit code."""
    import fcntl
    import struct
    import termios

    pid, screen = pty.fork()
    if pid == 0:
        os.environ.update(holter.environ())
        os.execv(words[0], list(words))
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    seen = b""
    while True:
        try:
            data = os.read(screen, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    _, status = os.waitpid(pid, 0)
    os.close(screen)
    return seen.decode(errors="replace"), os.waitstatus_to_exitcode(status)


def test_a_terminal_stays_a_terminal(holter: Holter) -> None:
    """In a terminal all three streams are terminals for the command too, of the same size."""
    script = holter.script(
        """
        import os, sys, time
        time.sleep(0.5)
        print([os.isatty(fd) for fd in (0, 1, 2)], os.get_terminal_size(), "end")
        """
    )

    seen, code = in_terminal(holter, *HOLTER, "run", "-q", "--", sys.executable, script)

    assert "[True, True, True] os.terminal_size(columns=100, lines=30) end\r\n" in seen
    assert code == 0


def test_a_pipe_stays_a_pipe(holter: Holter) -> None:
    """Outside a terminal the command sees none."""
    done = holter("run", "-q", "--", sys.executable, "-c", "import os; print([os.isatty(fd) for fd in (0, 1, 2)])")

    assert done.stdout == b"[False, False, False]\n"


def test_a_reader_that_comes_after_the_end_finds_a_pipe_as_large_as_without_us(holter: Holter) -> None:
    """Many short lines that fit into a pipe do not keep the command, nor Holter, from ending."""
    script = holter.script(
        "import os, time\nfor i in range(3200):\n    os.write(1, b'%019d\\n' % i)\n    if i < 30: time.sleep(0.00002)"
    )
    process = holter.start("run", "-q", "--", sys.executable, script)

    assert process.wait(600) == 0
    assert process.stdout is not None
    assert process.stdout.read() == b"".join(b"%019d\n" % i for i in range(3200))
