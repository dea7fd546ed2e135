"""Write-ahead log's store in an object store, through fsspec: `s3://`, `gs://`, `abfs://` and others."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.folder import who

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fsspec import AbstractFileSystem

__all__ = ["ObjectStore"]

_LOCK = "lock"
_TRIES = 3


class ObjectStore:
    """Store of objects under a URL. Exclusive creation is a conditional put: the store accepts only the first one.

    Picklable: it holds only its URL. Each process takes credentials and end points from the places that the store's
    library uses: environment, instance role, its own files, or fsspec's.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def prepare(self, *folders: str) -> None:
        """Check that objects are written whole; names need no folders. Raises ConfigurationError."""
        del folders
        files, _ = self._files()
        if not _whole(files):
            raise ConfigurationError(
                f"walDir={self.url}: {type(files).__name__} has no conditional put, and attempts of one task would "
                "overwrite each other's messages; use s3, gs or abfs",
                option="walDir",
            )

    def lock(self) -> Callable[[], None]:
        """Record this process as the last one. It locks no other process out."""
        files, root = self._files()
        files.pipe_file(f"{root}/{_LOCK}", who().encode())
        return lambda: None

    def holder(self) -> str:
        """Return the name of the process that was here last."""
        return (self.read(_LOCK) or b"another process").decode(errors="replace")

    def publish(self, name: str, *content: bytes | memoryview, durable: bool = True) -> bool:
        """Create an object of these pieces; return False if another process was first.

        An answer can be lost, and the library below then sends the request again, and finds our own object. The content
        of the object therefore decides who was first.
        """
        del durable  # always durable
        files, root = self._files()
        told = b"".join(content)
        # As one request, whatever the size: that is how the store was probed.
        more = {"chunksize": len(told) + 1} if "chunksize" in _parameters(files) else {}
        for left in reversed(range(_TRIES)):
            try:
                files.pipe_file(f"{root}/{name}", told, mode="create", **more)
            except Exception:
                found = self.read(name)
                if found is not None:
                    return found == told
                if not left:
                    raise
            else:
                return True
        raise AssertionError

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, or None."""
        files, root = self._files()
        try:
            return bytes(files.cat_file(f"{root}/{name}"))
        except FileNotFoundError:
            return None

    def local(self, name: str) -> str | None:
        """Return None: no object is a local file."""
        del name
        return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, in order, as `folder/name`."""
        files, root = self._files()
        files.invalidate_cache()  # other processes write, too
        try:
            found: list[str] = files.ls(f"{root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        last = (each.rstrip("/").rpartition("/")[2] for each in found)
        return sorted(f"{folder}/{each}" for each in last if each not in ("", folder))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; ignore missing ones."""
        files, root = self._files()
        for name in names:
            try:
                files.rm_file(f"{root}/{name}")
            except FileNotFoundError:
                continue

    def sweep(self, folder: str) -> None:
        """Do nothing: an object that was not written whole does not exist."""

    def _files(self) -> tuple[AbstractFileSystem, str]:
        """Return fsspec's file system for the URL, made in this process, and the path of the log in it."""
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - of an extra
        except ImportError:
            raise ConfigurationError(
                f"walDir={self.url}: needs fsspec and its library for this store; pip install 'redelivery[spark-s3]', "
                "or gcsfs, or adlfs, on the Spark driver and the executors",
                option="walDir",
            ) from None
        try:
            files, root = url_to_fs(self.url)
        # The store is not known, or its library is not installed: fsspec's text says what to install.
        except (ImportError, ValueError) as error:
            raise ConfigurationError(f"walDir={self.url}: {error}", option="walDir") from None
        return files, root.rstrip("/")


def _put(files: AbstractFileSystem) -> Callable[..., object]:
    found: Callable[..., object] = getattr(type(files), "_pipe_file" if files.async_impl else "pipe_file")
    return found


def _parameters(files: AbstractFileSystem) -> Iterable[str]:
    return inspect.signature(_put(files)).parameters


def _whole(files: AbstractFileSystem) -> bool:
    """True if the store's own class writes an object by one request; fsspec's general way opens a file and writes."""
    return not _put(files).__module__.startswith(("fsspec.spec", "fsspec.asyn"))
