"""What a line of code says of a lock, by its form: never by what a variable is called."""

import re

# A bare name after `with`, whatever it is called: nothing else is entered without a frame of its own.
_TAKES = re.compile(r"^(?:async )?with [\w.\[\]'\"]+(?: as \w+)?:|\.acquire\(")
_WAITS = re.compile(r"\.(?:get|put|wait|join|result)\(")


def takes_a_lock(code: str) -> bool:
    """`with lock:` or `lock.acquire()`."""
    return bool(_TAKES.search(code))


def waits_for_another(code: str) -> bool:
    """A lock, or what only another thread or process can end: a queue, an event, a join, a future."""
    return takes_a_lock(code) or bool(_WAITS.search(code))
