"""Where the log is: what is published there is whole, durable, and published by one only."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.store_probe import why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = ["LogTaken", "WalStore", "log_at", "prepared", "store_at", "taken"]


class LogTaken(RedeliveryError):
    """Another start of a query has taken the log over: this one must end, and has written nothing since."""


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


def store_at(url: str) -> WalStore:
    """Return the store that `walDir` names. No I/O. Raises ConfigurationError."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        path = unquote(parts.path) if parts.scheme else url
        if not Path(path).is_absolute():
            raise ConfigurationError(
                f"walDir={url} is a relative path, which the driver and the executors would not understand alike; "
                "give an absolute one",
                option="walDir",
            )
        return Folder(path)
    if parts.password is not None or parts.query:
        raise ConfigurationError(
            f"walDir={parts.scheme}://…: no password or option belongs into it, as plans show it; the store's own "
            "configuration (environment, instance role, fsspec's files) has them",
            option="walDir",
        )
    if parts.scheme in ("hdfs", "viewfs", "webhdfs", "sftp", "ftp", "http", "https"):
        raise ConfigurationError(
            f"walDir={parts.scheme}://…: there no name can be created exclusively, so that attempts of one task "
            "would overwrite each other's messages; use a shared folder (NFS), s3, gs or abfs",
            option="walDir",
        )
    from redelivery_spark.wal.object_store import ObjectStore  # noqa: PLC0415 - fsspec, which a folder needs none of

    return ObjectStore(url)


@contextmanager
def _told(url: str) -> Generator[None]:
    """Say in one sentence what a store says in as many words as it likes."""
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - each object store has its own
        said = getattr(error, "strerror", None) or str(error).split("\n", 1)[0][:200] or type(error).__name__
        raise ConfigurationError(f"walDir={url} cannot be written: {said}", option="walDir") from None


def log_at(url: str) -> WalStore:
    """Return the store that `walDir` names. Nothing is written, but a folder is made. Raises ConfigurationError."""
    store = store_at(url)
    with _told(url):
        store.prepare()
    return store


def prepared(url: str, *folders: str) -> WalStore:
    """Return the store that `walDir` names, once it has shown that it can hold a log. Raises ConfigurationError."""
    store = store_at(url)
    with _told(url):
        store.prepare(*folders)
        reason = why_not(store)
    if reason is not None:
        raise ConfigurationError(
            f"walDir={url} cannot hold a log: {reason}, so that attempts of one task would overwrite each other's "
            "messages; use another store, or a version of its library that creates exclusively",
            option="walDir",
        )
    return store


def taken(store: WalStore) -> LogTaken:
    """Return the error for who finds that it is not the newest start any more."""
    return LogTaken(
        f"the log {store.url} has been taken over by another start of a query ({store.holder()}); this one ends: each "
        "query needs a walDir of its own"
    )
