"""Structured logs: a formatter that writes each line of the log as one JSON object. Of the standard library alone."""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Any, cast

__all__ = ["JsonFormatter"]


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON in one line: `time`, `level`, `logger`, `message`, `exception`, and the fields.

    The lines of this library have their fields under `redelivery`: `event`, and what goes with it, as
    `redelivery.events` names it. Those of others have none.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "redelivery", None)
        if fields:
            found["redelivery"] = fields
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            found["stack"] = self.formatStack(record.stack_info)
        line = json.dumps(_finite(found), ensure_ascii=False, default=_text, skipkeys=True)
        # No lone surrogate, which no file takes.
        return line.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    """Return what JSON does not know as text; of an object that cannot be shown its type."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the line is of more use than this value
        return type(value).__name__


def _finite(value: object) -> object:
    """Return a value without infinite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in cast("dict[object, object]", value).items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
