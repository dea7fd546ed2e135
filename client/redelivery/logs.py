"""Structured logs: a formatter that writes each record as one JSON object.

It uses the standard library only.
"""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Any, cast

__all__ = ["JsonFormatter"]


class JsonFormatter(logging.Formatter):
    """Formatter that writes a record as JSON in one line.

    Its keys: `time`, `level`, `logger`, `message`, `exception`, `redelivery`. Records of this library have
    their fields under `redelivery`: `event`, and its details, named as in `redelivery.events`. Records of
    other libraries have no `redelivery`.
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
        # Lone surrogates are escaped: they cannot be encoded as UTF-8.
        return line.encode("utf-8", "backslashreplace").decode()


def _text(value: object) -> str:
    """Return a value that JSON does not have as text; the name of its type if `str` fails."""
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
