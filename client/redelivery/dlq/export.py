"""Rows of dead letters, for JSON and for files (JSON Lines, Parquet)."""

from __future__ import annotations

import base64
import errno
import json
import math
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from redelivery.errors import ConfigurationError, RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from redelivery.dlq.dead_letter import DeadLetter

__all__ = ["FORMATS", "check", "published", "row_of", "write", "written_value"]

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
