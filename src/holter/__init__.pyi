from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from holter.views.planned import Plan

__all__ = ["plan", "resumable", "step", "track"]
__version__: str

T = TypeVar("T")

def resumable(items: Iterable[T], every: float = 5.0, **state: Any) -> Iterator[T]: ...
def step(loss: Any = None, lr: Any = None, batch: int = 0) -> None: ...
def track(loader: Iterable[T], total: int | None = None) -> Iterator[T]: ...
def plan(
    model: Any,
    batch: Any = None,
    optimizer: Any = None,
    loss: Callable[..., Any] | None = None,
    *,
    step: Callable[[Any, Any], Any] | None = None,
    make_batch: Callable[[int], Any] | None = None,
    batch_size: int | None = None,
    batch_dim: int = 0,
    precision: str | None = None,
    memory: int | str | None = None,
    device: str | None = None,
    table: bool = True,
    measure: bool = True,
    seconds: float = 60.0,
) -> Plan: ...
def load_ipython_extension(shell: Any) -> None: ...
