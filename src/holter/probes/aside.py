"""A call that may never come back, made aside so that it cannot hold up the other readings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Exception):
    """The call has not come back yet; `waited` is how long it has been out."""

    def __init__(self, waited: float) -> None:
        super().__init__(f"no answer for {waited:.1f} s")
        self.waited = waited


class Aside(Generic[T]):
    """Makes one call at a time in a thread of its own that does not keep the program alive.

    A statvfs on a dead network mount and a driver call on a GPU that fell off the bus never return, and
    nothing can cancel them: while one is out, no second is made.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._out_since = 0.0
        self._thread: threading.Thread | None = None
        self._answer: list[T | Exception] = []

    def ask(self, call: Callable[[], T], patience: float) -> T:
        """The answer of this call, or of one that was late before; raises what the call raised, or `Late`."""
        if self._thread is None:
            self._answer = []
            self._out_since = self._clock()
            self._thread = threading.Thread(target=self._run, args=(call, self._answer), daemon=True)
            self._thread.start()
        self._thread.join(patience)
        if self._thread.is_alive():
            raise Late(self._clock() - self._out_since)
        self._thread = None
        answer = self._answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @staticmethod
    def _run(call: Callable[[], T], answer: list[T | Exception]) -> None:
        try:
            answer.append(call())
        except Exception as error:
            answer.append(error)
