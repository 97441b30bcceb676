from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["step", "track"]
__version__: str

T = TypeVar("T")

def step(loss: Any = None, lr: Any = None, batch: int = 0) -> None: ...
def track(loader: Iterable[T], total: int | None = None) -> Iterator[T]: ...
