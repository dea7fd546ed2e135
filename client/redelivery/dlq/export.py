"""Rows of dead letters, for JSON and for files (JSON Lines, Parquet)."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

from redelivery.core.dead_lettering.dead_letter_headers import time_in
from redelivery.core.option_values import shown
from redelivery.dlq.dead_letter import UNKNOWN, DeadLetter
from redelivery.errors import ConfigurationError, RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from datetime import datetime

    from redelivery.core.delivery import BodyKind

__all__ = [
    "FORMATS",
    "SUFFIX",
    "ExportedLine",
    "LineError",
    "SentLines",
    "check",
    "exported",
    "lines_of",
    "published",
    "row_of",
    "write",
    "written_value",
]


# ---- Export ----------------------------------------------------------------------------------------------

FORMATS = ("jsonl", "parquet")
_NEW = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | os.O_CLOEXEC
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)
# Rows of a Parquet row group, at most.
ROWS = 1000
# Bytes of the bodies in one, about: an export need not fit into memory.
BYTES = 8 * 1024 * 1024

# Nesting of a property's value that is written.
DEPTH = 16

# Columns of a Parquet file, each named as the field of a DeadLetter that it is made of.
COLUMNS = {
    "message_id": "string",
    "original_id": "string",
    "queue": "string",
    "original_destination": "string",
    "cause": "string",
    "first_failure": "timestamp",
    "died_at": "timestamp",
    "redelivery_count": "int64",
    "redrives": "int64",
    "whole": "bool",
    "content_type": "string",
    "correlation_id": "string",
    "message_type": "string",
    "priority": "int64",
    "persistent": "bool",
    "body_kind": "string",
    "reply_to": "string",
    "group": "string",
    "lossy": "string",
    "headers": "map",
    "body": "binary",
}


def row_of(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON fields: the body as `body` where it is text, else as `body_base64`."""
    row: dict[str, Any] = {
        "message_id": letter.message_id,
        "original_id": letter.original_id,
        "queue": letter.queue,
        "original_destination": letter.original_destination,
        "cause": letter.cause,
        "first_failure": None if letter.first_failure is None else letter.first_failure.isoformat(),
        "died_at": None if letter.died_at is None else letter.died_at.isoformat(),
        "redelivery_count": letter.redelivery_count,
        "redrives": letter.redrives,
        "whole": letter.whole,
        "content_type": letter.content_type,
        "correlation_id": letter.correlation_id,
        "type": letter.message_type,
        "priority": letter.priority,
        "persistent": letter.persistent,
        "body_kind": letter.body_kind,
        "reply_to": letter.reply_to,
        "group": letter.group,
        "lossy": letter.lossy or None,
        "headers": {str(name): written_value(value) for name, value in letter.headers.items()},
    }
    try:
        row["body"] = letter.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(letter.body).decode()
    return row


def written_value(value: object, depth: int = 0) -> Any:
    """Return a property's value as JSON and a terminal can show it, whatever the producer sent."""
    if isinstance(value, Mapping | list | tuple):
        if depth >= DEPTH:
            return "…"
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).items()
            return {str(written_value(name, DEPTH)): written_value(each, depth + 1) for name, each in items}
        return [written_value(each, depth + 1) for each in cast("Iterable[object]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) >= 2**64:
        # Python writes no number of more than 4,300 digits in decimals.
        return hex(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def check(form: str) -> None:
    """Raise ConfigurationError if a format is unknown, or its library is not installed."""
    if form not in FORMATS:
        raise ConfigurationError(f"format must be jsonl or parquet, not {form!r}", option="format")
    if form == "parquet":
        try:
            import_module("pyarrow.parquet")
        except ModuleNotFoundError:
            raise ConfigurationError(
                "format=parquet needs pyarrow: pip install 'redelivery[parquet]'; or use jsonl",
                option="format",
            ) from None


@contextmanager
def published(target: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """Write a file that gets its name only when it is whole; a half one is removed. Raises OSError, with `target`."""
    path = Path(target)
    if path.exists() and not path.is_file():  # a pipe, or a terminal
        with path.open("wb") as file:
            yield file
        return
    _check_link(path)
    # A link stays: the file that it names is replaced.
    path = path.resolve()
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        # Bodies are readable by the user who exports them, or by the readers of the file that is replaced.
        with os.fdopen(os.open(part, _NEW, 0o600), "wb") as file:
            with suppress(FileNotFoundError):
                os.chmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        # A lost connection is an OSError too.
        if isinstance(error, OSError) and not isinstance(error, RedeliveryError):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise


def _check_link(path: Path) -> None:
    """Raise PermissionError for another user's link in a shared directory: kernels check it at open, not at rename."""
    if path.is_symlink():
        folder, owner = path.parent.stat(), path.lstat().st_uid
        if folder.st_mode & stat.S_ISVTX and owner not in (os.geteuid(), folder.st_uid):
            raise PermissionError(errno.EACCES, "another user's link in a shared directory", str(path))


def write(
    letters: Iterable[DeadLetter], target: IO[bytes], form: str, progress: Callable[[int], None] | None = None
) -> int:
    """Write dead letters in the format `form`; return their number. Raises ConfigurationError."""
    check(form)
    if form == "parquet":
        return _parquet(letters, target, progress)
    count = 0
    for count, letter in enumerate(letters, 1):
        line = json.dumps(row_of(letter), ensure_ascii=False, default=str)
        target.write(line.encode("utf-8", "backslashreplace") + b"\n")
        if progress is not None:
            progress(count)
    return count


def _schema(arrow: Any) -> Any:
    types = {
        "string": arrow.string(),
        "timestamp": arrow.timestamp("us", tz="UTC"),
        "int64": arrow.int64(),
        "bool": arrow.bool_(),
        "map": arrow.map_(arrow.string(), arrow.string()),
        "binary": arrow.binary(),
    }
    return arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])


def _parquet(letters: Iterable[DeadLetter], target: IO[bytes], progress: Callable[[int], None] | None) -> int:
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    schema, count, size = _schema(arrow), 0, 0
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(target, schema) as writer:
        for letter in letters:
            rows.append({name: _cell(getattr(letter, name)) for name in COLUMNS})
            size += len(letter.body)
            if len(rows) >= ROWS or size >= BYTES:
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
                rows.clear()
                size = 0
            count += 1
            if progress is not None:
                progress(count)
        writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    return count


def _cell(value: object) -> Any:
    """Return a value that its Parquet column can have."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if isinstance(value, Mapping):
        return [(_text(name), _text(each)) for name, each in cast("Mapping[str, object]", value).items()]
    return value


def _text(value: object) -> str:
    text = (
        value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(written_value(value))
    )
    return text.encode("utf-8", "backslashreplace").decode()


# ---- Exported --------------------------------------------------------------------------------------------
# Lines of an export read back as dead letters. The file is not trusted: anyone may have edited it.

LONGEST = 512 * 1024 * 1024
"""Bytes of a line: more than the largest message that a connection takes by default, in base64."""
_KINDS = frozenset({"text", "bytes", "partial", "unknown", "unknown-bytes"})


class LineError(ValueError):
    """A line is no dead letter that can be sent; the text says why."""


@dataclass(frozen=True, slots=True)
class ExportedLine:
    """One line of a file. `number`: counted from 1. `whole`: False if it is longer than is read."""

    number: int
    raw: bytes
    whole: bool = True


def lines_of(file: IO[bytes]) -> Iterator[ExportedLine]:
    """Yield the lines of a file that are not blank; of a line that is too long only the beginning."""
    number, raw = 0, b""
    while raw := file.readline(LONGEST):
        number += 1
        whole = raw.endswith(b"\n") or len(raw) < LONGEST
        if raw.strip():
            yield ExportedLine(number, raw.rstrip(b"\r\n"), whole)
        while not raw.endswith(b"\n") and len(raw) == LONGEST:
            raw = file.readline(LONGEST)


def exported(line: ExportedLine) -> DeadLetter:
    """Return the dead letter of a line. Raises LineError."""
    if not line.whole:
        raise LineError(f"it is longer than {LONGEST:,} bytes")
    try:
        row = json.loads(line.raw)
    # Bytes that are no UTF-8, a number of thousands of digits, or nested too deep.
    except (ValueError, RecursionError):
        raise LineError("it is no JSON; dlq export writes one object in each line") from None
    if not isinstance(row, dict):
        raise LineError("it is no JSON object; dlq export writes one in each line")
    return _letter(cast("Mapping[str, Any]", row))


def _letter(row: Mapping[str, Any]) -> DeadLetter:
    body, kind = _body(row)
    headers = _of(row, "headers", dict, {})
    return DeadLetter(
        message_id=_of(row, "message_id", str),
        original_id=_of(row, "original_id", str),
        queue=_of(row, "queue", str, ""),
        original_destination=_of(row, "original_destination", str),
        cause=_of(row, "cause", str, UNKNOWN),
        first_failure=_time(row, "first_failure"),
        died_at=_time(row, "died_at"),
        redelivery_count=_of(row, "redelivery_count", int),
        redrives=_of(row, "redrives", int, 0),
        whole=_of(row, "whole", bool, True),  # noqa: FBT003 - the value of a row without the field
        headers=cast("Mapping[str, Any]", headers),
        body=body,
        content_type=_of(row, "content_type", str),
        correlation_id=_of(row, "correlation_id", str),
        message_type=_of(row, "type", str),
        priority=_of(row, "priority", int, 4),
        persistent=_of(row, "persistent", bool, True),  # noqa: FBT003 - as above
        body_kind=kind,
        reply_to=_of(row, "reply_to", str),
        group=_of(row, "group", str),
        lossy=_of(row, "lossy", str, ""),
    )


def _body(row: Mapping[str, Any]) -> tuple[bytes, BodyKind]:
    """Return the body and its type; an export of an earlier version has no type."""
    text, encoded = _of(row, "body", str), _of(row, "body_base64", str)
    if (text is None) == (encoded is None):
        raise LineError("it must have one of body and body_base64")
    kind = _of(row, "body_kind", str, "bytes" if text is None else "text")
    if kind not in _KINDS:
        raise LineError(f"body_kind must be text or bytes, not {shown(kind)}")
    try:
        body = base64.b64decode(encoded, validate=True) if encoded is not None else str(text).encode()
    except UnicodeEncodeError:
        raise LineError("body has a lone surrogate, which is no text; write body_base64") from None
    except ValueError:
        raise LineError("body_base64 is no base64") from None
    return body, cast("BodyKind", kind)


def _of(row: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Return a field; `default` if it is missing or null. Raises LineError for another type."""
    value = row.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise LineError(f"{name} must be {_NAMES[kind]}, not {shown(value)}")
    return value


_NAMES: Mapping[type, str] = {str: "text", int: "a whole number", bool: "true or false", dict: "an object"}


def _time(row: Mapping[str, Any], name: str) -> datetime | None:
    if _of(row, name, str) is None:
        return None
    if (at := time_in(row, name)) is None:
        raise LineError(f"{name} must be an ISO 8601 time, not {shown(row[name])}")
    return at


# ---- Sent lines ------------------------------------------------------------------------------------------
# File of progress beside an export: the lines that a broker has confirmed, so that a second run leaves them out.
#
# It exists from the first confirmed line until no line is left. A line is known by a digest of its text and its
# destination, not by its number: lines may be corrected, added and removed between two runs.

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


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
