"""Lines of an export read back as dead letters. The file is not trusted: anyone may have edited it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from redelivery.core.dead_lettering.header_values import time_in
from redelivery.core.option_values import shown
from redelivery.dlq.dead_letter import UNKNOWN, DeadLetter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from redelivery.core.delivery import BodyKind

__all__ = ["ExportedLine", "LineError", "exported", "lines_of"]

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
