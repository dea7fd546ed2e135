"""Object stores in memory: one that creates exclusively, and others that only pretend to."""

from __future__ import annotations

import threading
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import register_implementation

__all__ = ["register"]


class Sound(MemoryFileSystem):
    """Creates exclusively, as a conditional put does."""

    protocol = "sound"
    _one = threading.Lock()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write an object."""
        with self._one:
            super().pipe_file(path, value, mode=mode, **kwargs)


class Deaf(MemoryFileSystem):
    """Ignores the condition as an unknown option, as older libraries and stores do."""

    protocol = "deaf"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write an object."""
        super().pipe_file(path, value, mode="overwrite", **kwargs)


class Looks(MemoryFileSystem):
    """Checks first, and writes then, with other writers in between."""

    protocol = "looks"
    _met = threading.Barrier(2)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write an object."""
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        try:
            self._met.wait(0.1)
        except threading.BrokenBarrierError:
            self._met.reset()
        super().pipe_file(path, value, mode="overwrite", **kwargs)


class Forgetful(Sound):
    """Loses the answer of each creation: the library below asks again, and finds its own object."""

    protocol = "forgetful"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write an object."""
        super().pipe_file(path, value, mode=mode, **kwargs)
        if mode == "create":
            raise FileExistsError(path)


class Plain(MemoryFileSystem):
    """Has no way of its own to write a whole object, as SFTP and HDFS in fsspec."""

    protocol = "plain"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write an object."""
        AbstractFileSystem.pipe_file(self, path, value, mode=mode, **kwargs)

    pipe_file.__module__ = AbstractFileSystem.__module__


def register() -> None:
    """Register them in fsspec as `sound://` and so on, all empty."""
    for kind in (Sound, Deaf, Looks, Forgetful, Plain):
        kind.store, kind.pseudo_dirs = {}, [""]
        register_implementation(kind.protocol, kind, clobber=True)
