"""Interface of the write-ahead log's store, which `Folder` and `ObjectStore` implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["WalStore"]


class WalStore(Protocol):
    """Store of files that all processes of a query reach by the same names. Names may have one `/`.

    Picklable: it holds only its location, and no credentials. All other failures raise OSError, or the errors of an
    object store's library.
    """

    url: str

    def prepare(self, *folders: str) -> None:
        """Make the place, and the folders in it."""

    def lock(self) -> Callable[[], None] | None:
        """Lock the whole log; return the function that unlocks it. None: another process has the lock.

        A store without locks lets every process in. Not the lock ensures that only the newest start writes, but the
        numbers of states: each can be published once.
        """

    def holder(self) -> str:
        """Return the name of the process that took the lock last."""
        ...

    def publish(self, name: str, *content: bytes | memoryview, durable: bool = True) -> bool:
        """Create a file of these pieces atomically. Return False if another process was first."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None."""

    def local(self, name: str) -> str | None:
        """Return the path of a file that can be mapped into memory and locked; None: the store has no such files."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order, as `folder/name`."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; ignore missing ones."""

    def sweep(self, folder: str) -> None:
        """Remove the files of writers that died. Only for the process that has the lock."""
