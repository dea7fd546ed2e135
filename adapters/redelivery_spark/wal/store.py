"""Choice of the write-ahead log's store. A published file is whole, durable, and published by one process only."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from redelivery.errors import ConfigurationError, RedeliveryError, TransportError
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.store_probe import why_not

if TYPE_CHECKING:
    from collections.abc import Generator

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["LogTaken", "log_at", "prepared", "store_at", "taken"]


# Errors that another attempt does not mend. All others: a store, a network or a disk is unavailable or full for now.
_LASTING = (
    PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, ImportError, TypeError,
    ValueError,
)  # fmt: skip
_LASTING_NUMBERS = (errno.EROFS, errno.ENAMETOOLONG, errno.ENOTSUP)


class LogTaken(RedeliveryError):
    """Another start of a query has taken the log: this one must end, and has written nothing since."""


def store_at(url: str) -> WalStore:
    """Return the store for a `walDir`. No I/O. Raises ConfigurationError."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        path = unquote(parts.path) if parts.scheme else url
        if not Path(path).is_absolute():
            raise ConfigurationError(
                f"walDir={url}: a relative path, which can differ between the Spark driver and the executors; use an "
                "absolute path",
                option="walDir",
            )
        return Folder(path)
    if parts.password is not None or parts.query:
        raise ConfigurationError(
            f"walDir={parts.scheme}://…: must have no password or options, because Spark's plans show it; use the "
            "store's own configuration (environment, instance role, fsspec's files)",
            option="walDir",
        )
    if parts.scheme in ("hdfs", "viewfs", "webhdfs", "sftp", "ftp", "http", "https"):
        raise ConfigurationError(
            f"walDir={parts.scheme}://…: has no exclusive creation, and attempts of one task would overwrite each "
            "other's messages; use a shared folder (NFS), s3, gs or abfs",
            option="walDir",
        )
    from redelivery_spark.wal.object_store import ObjectStore  # noqa: PLC0415 - fsspec, which a folder needs none of

    return ObjectStore(url)


@contextmanager
def _told(url: str) -> Generator[None]:
    """Turn an error of a store into one sentence: a TransportError if it may pass, else a ConfigurationError."""
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - each object store has its own
        said = getattr(error, "strerror", None) or str(error).split("\n", 1)[0][:200] or type(error).__name__
        why = f"walDir={url}: cannot be written: {said}"
        if isinstance(error, _LASTING) or getattr(error, "errno", None) in _LASTING_NUMBERS:
            raise ConfigurationError(why, option="walDir") from None
        raise TransportError(why) from None


def log_at(url: str) -> WalStore:
    """Return the store for a `walDir`. Nothing is written, but a folder is made.

    Raises:
        ConfigurationError: It cannot be used.
        TransportError: It cannot be reached, or is full, at the moment.
    """
    store = store_at(url)
    with _told(url):
        store.prepare()
    return store


def prepared(url: str, *folders: str) -> WalStore:
    """Return the store for a `walDir`, after a test that it can hold a log.

    Raises:
        ConfigurationError: It cannot.
        TransportError: It cannot be reached, or is full, at the moment.
    """
    store = store_at(url)
    with _told(url):
        store.prepare(*folders)
        reason = why_not(store)
    if reason is not None:
        raise ConfigurationError(
            f"walDir={url}: cannot hold a log, because {reason}, and attempts of one task would overwrite each other's "
            "messages; use another store, or a version of its library that creates exclusively",
            option="walDir",
        )
    return store


def taken(store: WalStore) -> LogTaken:
    """Return the error of a start that finds a newer one."""
    return LogTaken(
        f"walDir={store.url}: taken over by another start of a query ({store.holder()}); this start ends; give each "
        "query its own walDir"
    )
