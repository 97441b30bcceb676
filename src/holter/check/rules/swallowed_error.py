"""An `except` around the training step swallows every error.

What it does: finds a bare `except`, or one for `Exception`, around a step or a fit, that only passes, goes on or
prints; and any handler around one that ends the program with exit code 0.
Why it halts or slows a run: out of memory, a broken batch or a bug become a line in a log or nothing at all: the run
goes on without training, or ends early with exit code 0 and is taken for a success. A bare `except` also catches
Ctrl-C.
Example:
    try:
        loss.backward()
        optimizer.step()
    except Exception:
        continue
Instead:
    try:
        loss.backward()
        optimizer.step()
    except torch.OutOfMemoryError:
        log.exception("batch %s does not fit", i)
        raise
When the fix is safe: never by itself: only the author knows which error was expected.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on, dotted
from holter.source.module import Module
from holter.source.training import MARKS

CODE = "HLT206"
CAUSE = "early-stop.swallowed-error"
NEEDS = (".backward(", ".fit(", "apply_gradients", "train_on_batch", "optim")
AND_NEEDS = (*MARKS, ".fit")
CURES = (Cure("re-raise it after logging, and catch only what you expect", "+     raise", "changed"),)

_ALL_ERRORS = ("Exception", "BaseException")
_TELLS = re.compile(
    r"^(?:print|traceback\.print_exc|(?:\w+\.)*(?:log\w*|_?logger|warnings)\.\w+|logging\.\w+|tqdm\.write)$"
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at handlers of a `try` whose own body takes a step."""
    for attempt in module.tries:
        if not _steps(module, attempt):
            continue
        for handler in attempt.handlers:
            if _leaves_quietly(handler):
                caught = ast.unparse(handler.type) if handler.type is not None else "everything"
                claim = f"an error of the training ends the run with exit code 0: the handler catches {caught}"
                yield Hit(_line(handler), claim, "error")
                continue
            if not _wide(handler) or not all(_quiet(one) for one in handler.body):
                continue
            caught = ast.unparse(handler.type) if handler.type is not None else "everything, also Ctrl-C"
            claim = f"an error of the training step is swallowed here: the handler for {caught} does not raise it again"
            yield Hit(_line(handler), claim, "error")


def _line(handler: ast.ExceptHandler) -> ast.stmt:
    # The handler is no statement; its place is.
    place = ast.Pass()
    place.lineno, place.col_offset = handler.lineno, handler.col_offset
    place.end_lineno, place.end_col_offset = handler.lineno, handler.col_offset + len("except")
    return place


def _steps(module: Module, attempt: ast.Try) -> bool:
    for statement in attempt.body:
        for node in [statement, *module.within(statement)]:
            if not isinstance(node, ast.Call):
                continue
            # One gradient outside of any loop is a computation, not a training.
            trains = module.training.lost(node) is not None or module.training.is_step(node)
            if trains and any(node in marks for marks in module.training.step_loops.values()):
                return True
            if module.kinds.of(called_on(node, "fit")) in ("keras-model", "trainer"):
                return True
    return False


def _leaves_quietly(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends the program as if nothing had happened."""
    if handler.type is not None and re.search(
        r"KeyboardInterrupt|SystemExit|EarlyStop|StopIteration", ast.unparse(handler.type)
    ):
        return False
    last = handler.body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call) or dotted(call.func) not in ("sys.exit", "exit", "quit", "os._exit"):
        return False
    return not call.args or (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)


def _wide(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or dotted(handler.type) in _ALL_ERRORS


def _quiet(statement: ast.stmt) -> bool:
    """Whether a statement only goes on, or tells what happened."""
    if isinstance(statement, (ast.Pass, ast.Continue)):
        return True
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Constant) or (
            isinstance(value, ast.Call) and bool(_TELLS.match(dotted(value.func)))
        )
    return False
