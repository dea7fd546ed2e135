"""What a place for the log must do: the interface that `Folder` and `ObjectStore` implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["WalStore"]


class WalStore(Protocol):
    """A place for files that all processes of a query reach by the same name. Names may have one `/`.

    Picklable: it holds nothing but where it is, and no credentials. Whatever is not said here raises OSError, or what
    the library of an object store has in its place.
    """

    url: str

    def prepare(self, *folders: str) -> None:
        """Make the place, and the folders in it."""

    def lock(self) -> Callable[[], None] | None:
        """Take the lock of the whole log, and return what gives it back; None: somebody has it.

        A place without locks lets everybody in: that only the newest start writes is not the lock's doing, but that of
        the numbers of states, each of which can be published once.
        """

    def holder(self) -> str:
        """Say who has taken the lock last."""
        ...

    def publish(self, name: str, content: bytes | memoryview, *, durable: bool = True) -> bool:
        """Write a file that nobody else can have written before, whole or not at all; False: somebody was first."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None."""

    def local(self, name: str) -> str | None:
        """Return the path of a file that can be mapped into memory here, or None where there is no such thing."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order, as `folder/name`."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, those that are gone already too."""

    def sweep(self, folder: str) -> None:
        """Remove what writers that died have left behind in a folder. Only for who has the lock."""
