"""An object store as the log needs it, by what fsspec has for it: `s3://`, `gs://`, `abfs://` and others."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.process_id import who

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fsspec import AbstractFileSystem

__all__ = ["ObjectStore"]

_LOCK = "lock"
_TRIES = 3


class ObjectStore:
    """Objects under a URL: exclusive creation is a conditional put, of which the store lets only the first through.

    Picklable: it holds nothing but its URL. Credentials and end points come from where the library of the store takes
    them in each process: environment, instance role, its own files, or fsspec's.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def prepare(self, *folders: str) -> None:
        """Nothing, where names need no folders; but see that objects are written whole. Raises ConfigurationError."""
        del folders
        files, _ = self._files()
        if not _whole(files):
            raise ConfigurationError(
                f"walDir={self.url}: {type(files).__name__} has no conditional put (fsspec would look first, and write "
                "then), so that attempts of one task would overwrite each other's messages; use a store that has one: "
                "s3, gs or abfs",
                option="walDir",
            )

    def lock(self) -> Callable[[], None]:
        """Write down who is here. It keeps nobody out."""
        files, root = self._files()
        files.pipe_file(f"{root}/{_LOCK}", who().encode())
        return lambda: None

    def holder(self) -> str:
        """Say who has been here last."""
        return (self.read(_LOCK) or b"another process").decode(errors="replace")

    def publish(self, name: str, content: bytes | memoryview, *, durable: bool = True) -> bool:
        """Create an object; False: somebody was first.

        An answer may be lost, and its request be sent again by the library below, which then finds our own object. So
        who was first is told by what is there.
        """
        del durable  # always
        files, root = self._files()
        told = bytes(content)
        # As one request, however large: the way that was probed.
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
        """Return None: nothing of it is in a file here."""
        del name
        return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, in order, as `folder/name`."""
        files, root = self._files()
        files.invalidate_cache()  # others write, too
        try:
            found: list[str] = files.ls(f"{root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        last = (each.rstrip("/").rpartition("/")[2] for each in found)
        return sorted(f"{folder}/{each}" for each in last if each not in ("", folder))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, those that are gone already too."""
        files, root = self._files()
        for name in names:
            try:
                files.rm_file(f"{root}/{name}")
            except FileNotFoundError:
                continue

    def sweep(self, folder: str) -> None:
        """Nothing: an object that was not written whole is not there."""

    def _files(self) -> tuple[AbstractFileSystem, str]:
        """Return what fsspec has for the URL, made in this process, and the path of the log there."""
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - of an extra
        except ImportError:
            raise ConfigurationError(
                f"walDir={self.url} needs fsspec and its library for this store: pip install 'redelivery[spark-s3]', "
                "or gcsfs, or adlfs, on the driver and the executors",
                option="walDir",
            ) from None
        try:
            files, root = url_to_fs(self.url)
        # Not known, or not installed: fsspec says what to install.
        except (ImportError, ValueError) as error:
            raise ConfigurationError(f"walDir={self.url}: {error}", option="walDir") from None
        return files, root.rstrip("/")


def _put(files: AbstractFileSystem) -> Callable[..., object]:
    found: Callable[..., object] = getattr(type(files), "_pipe_file" if files.async_impl else "pipe_file")
    return found


def _parameters(files: AbstractFileSystem) -> Iterable[str]:
    return inspect.signature(_put(files)).parameters


def _whole(files: AbstractFileSystem) -> bool:
    """Whether objects are written by a request of the store's own; fsspec's way for all others opens, and writes."""
    return not _put(files).__module__.startswith(("fsspec.spec", "fsspec.asyn"))
