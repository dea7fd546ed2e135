"""Base of objects that are started at the beginning of a `with`, and closed at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Running"]


class Running(ABC):
    """A context manager around `start` and `close`."""

    def start(self) -> Self:
        """Start nothing, unless a subclass overrides it."""
        return self

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
