"""Job control, as the user's shell expects it of a command: Ctrl-C, Ctrl-Z, fg and bg."""

from __future__ import annotations

import os
import signal


class Terminal:
    """Lends the user's terminal to the command's process group, and takes it back when the command stops."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self.here = kinds["stdin"] == "tty"
        # In a pipeline a neighbour may be reading the terminal, as a pager does: there the command only gets it
        # when it asks for it.
        self.at_once = self.here and kinds["stdout"] == "tty" and self._is(os.getpgrp())
        self.lent = self.at_once

    def _is(self, group: int) -> bool:
        try:
            return os.tcgetpgrp(0) == group
        except OSError:
            return False

    def _give(self, group: int) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(0, group)
        except OSError:
            pass
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def command_stopped(self, group: int, number: int) -> None:
        """The command has stopped: stop with it, so that the shell can go on; returns when we are continued."""
        if self.here and number in (signal.SIGTTIN, signal.SIGTTOU) and self._is(os.getpgrp()):
            self.lent = True
            self._give(group)
            os.killpg(group, signal.SIGCONT)
            return
        if self.lent and self._is(group):
            self._give(os.getpgrp())
        if number != signal.SIGSTOP:
            self._stop()
            if self.lent and self._is(os.getpgrp()):
                self._give(group)
            try:
                os.killpg(group, signal.SIGCONT)
            except OSError:
                pass

    def _stop(self) -> None:
        """Stop as the command has stopped; returns when we are continued: by fg, bg, or by whoever has it go on."""
        if self.here:
            # The shell goes on when its whole job has stopped. Whom we have stopped we also have go on: whoever
            # continues us alone knows nothing of the others.
            os.killpg(os.getpgrp(), signal.SIGSTOP)
            os.killpg(os.getpgrp(), signal.SIGCONT)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)  # the script that called us is not to stop for good

    def give_back(self) -> None:
        """At the end the terminal is the shell's job's again."""
        if self.here and self.lent and not self._is(os.getpgrp()):
            self._give(os.getpgrp())
