from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["resumable", "step", "track"]
__version__: str

T = TypeVar("T")

def resumable(items: Iterable[T], every: float = 5.0, **state: Any) -> Iterator[T]: ...
def step(loss: Any = None, lr: Any = None, batch: int = 0) -> None: ...
def track(loader: Iterable[T], total: int | None = None) -> Iterator[T]: ...
