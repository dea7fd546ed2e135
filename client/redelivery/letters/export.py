"""Dead letters as rows: for JSON, and for files."""

from __future__ import annotations

import base64
import json
from typing import IO, TYPE_CHECKING, Any

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redelivery.letters.letter import DeadLetter

__all__ = ["FORMATS", "row_of", "write"]

FORMATS = ("jsonl", "parquet")
BATCH = 1000  # rows of a Parquet row group


def row_of(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON has it: the body as `body` where it is text, else as `body_base64`."""
    row: dict[str, Any] = {
        "message_id": letter.message_id,
        "original_id": letter.original_id,
        "queue": letter.queue,
        "original_destination": letter.original_destination,
        "cause": letter.cause,
        "died_at": None if letter.died_at is None else letter.died_at.isoformat(),
        "redelivery_count": letter.redelivery_count,
        "redrives": letter.redrives,
        "whole": letter.whole,
        "content_type": letter.content_type,
        "correlation_id": letter.correlation_id,
        "type": letter.message_type,
        "priority": letter.priority,
        "persistent": letter.persistent,
        "headers": dict(letter.headers),
    }
    try:
        row["body"] = letter.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(letter.body).decode()
    return row


def write(
    letters: Iterable[DeadLetter], target: IO[bytes], form: str, told: Callable[[int], None] | None = None
) -> int:
    """Write dead letters in the format `form`; return how many.

    Raises:
        ConfigurationError: there is no such format, or pyarrow is not installed.
    """
    if form == "parquet":
        return _parquet(letters, target, told)
    if form != "jsonl":
        raise ConfigurationError(f"format must be jsonl or parquet, not {form!r}", option="format")
    count = 0
    for count, letter in enumerate(letters, 1):
        line = json.dumps(row_of(letter), ensure_ascii=False, default=str)
        target.write(line.encode("utf-8", "backslashreplace") + b"\n")
        if told is not None:
            told(count)
    return count


def _parquet(letters: Iterable[DeadLetter], target: IO[bytes], told: Callable[[int], None] | None) -> int:
    try:
        from importlib import import_module  # noqa: PLC0415

        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ConfigurationError(
            "format=parquet needs pyarrow: pip install pyarrow; or use jsonl", option="format"
        ) from None
    text, number = arrow.string(), arrow.int64()
    fields = [
        *((name, text) for name in ("message_id", "original_id", "queue", "original_destination", "cause")),
        ("died_at", arrow.timestamp("us", tz="UTC")),
        *((name, number) for name in ("redelivery_count", "redrives", "priority")),
        *((name, arrow.bool_()) for name in ("whole", "persistent")),
        *((name, text) for name in ("content_type", "correlation_id", "message_type")),
        ("headers", arrow.map_(text, text)),
        ("body", arrow.binary()),
    ]
    schema = arrow.schema(fields)
    count = 0
    with parquet.ParquetWriter(target, schema) as writer:
        rows: list[dict[str, Any]] = []

        def flush() -> None:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            rows.clear()

        for count, letter in enumerate(letters, 1):
            row: dict[str, Any] = {name: getattr(letter, name) for name, _ in fields}
            row["headers"] = [(name, str(value)) for name, value in letter.headers.items()]
            rows.append(row)
            if len(rows) >= BATCH:
                flush()
            if told is not None:
                told(count)
        flush()
    return count
