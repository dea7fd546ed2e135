"""File of progress beside an export: the lines that a broker has confirmed, so that a second run leaves them out.

It exists from the first confirmed line until no line is left. A line is known by a digest of its text and its
destination, not by its number: lines may be corrected, added and removed between two runs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from redelivery.dlq.exported import ExportedLine

__all__ = ["SUFFIX", "SentLines"]

SUFFIX = ".sent"
# Bytes of a digest: two lines never have the same.
DIGEST = 16
_OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class SentLines:
    """The lines of one export that were sent, by this run or an earlier one. Use it as a context manager."""

    def __init__(self, export: str | os.PathLike[str] | None, *, reads_only: bool = False) -> None:
        """Do nothing yet.

        `export`: name of the export; None: it has none, and nothing is written down. `reads_only`: nothing is written.
        """
        self._reads_only = reads_only
        self._path = None if export is None else Path(f"{os.fspath(export)}{SUFFIX}")
        self._file: int | None = None
        self._known: Counter[bytes] = Counter()
        self._left = True

    def __enter__(self) -> Self:
        """Read what earlier runs have sent. Raises OSError, with the file's name."""
        if self._path is None or (self._reads_only and not self._path.exists()):
            return self
        try:
            self._file = os.open(self._path, _OPEN, 0o600)
            self._check(self._file)
        except OSError as error:
            self.__exit__()
            raise OSError(
                error.errno, f"no progress can be kept: {error.strerror}", str(self._path)
            ) from None
        with os.fdopen(os.dup(self._file), "rb") as file:
            lines = file.readlines()
        self._known.update(line[:-1] for line in lines if len(line) == 2 * DIGEST + 1)
        if lines and not lines[-1].endswith(b"\n") and not self._reads_only:
            # A kill has cut it off: its message is sent once more, and the next line must not be joined to it.
            os.ftruncate(self._file, sum(map(len, lines[:-1])))
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file if no line is left, or none was sent."""
        if self._file is None:
            return
        done = not self._left or not os.fstat(self._file).st_size
        if self._path is not None and done and not self._reads_only:
            with suppress(OSError):
                self._path.unlink()
        os.close(self._file)
        self._file = None

    def take(self, line: ExportedLine, destination: str) -> bool:
        """Return True if the line was sent before; of two equal lines each counts once."""
        digest = _digest(line, destination)
        if not self._known[digest]:
            return False
        self._known[digest] -= 1
        return True

    def add(self, line: ExportedLine, destination: str) -> None:
        """Write down that the line was sent. Raises OSError."""
        if self._file is not None:
            # One write: after a kill the line is there or not.
            os.write(self._file, _digest(line, destination) + b"\n")

    def finish(self) -> None:
        """Note that no line is left: the next run begins anew."""
        self._left = False

    def _check(self, file: int) -> None:
        """Raise OSError if the file is another user's, who could have a line left out, or if another run uses it."""
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or (hasattr(os, "geteuid") and found.st_uid != os.geteuid()):
            raise PermissionError(errno.EACCES, "it is another user's, or no file")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BlockingIOError(errno.EWOULDBLOCK, "another run is sending this export") from None


def _digest(line: ExportedLine, destination: str) -> bytes:
    text = b"\0".join((destination.encode(), line.raw))
    return hashlib.blake2b(text, digest_size=DIGEST).hexdigest().encode()
